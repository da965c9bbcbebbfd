#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// Where a pixel's best class is too weak it is background.
struct BackgroundThreshold {
  double value = 0;
  /// Of the probability, a softmax over all names that were asked for of this times their cosines; none: of the cosine.
  std::optional<double> logit_scale;
};

struct SegmentationOptions {
  std::array<std::int64_t, 2> grid{};  // rows and columns of the patches
  std::string upsample = "bilinear";   // of cosines or groups' weights, align_corners = false; or nearest
  std::string candidates = "present";  // classes of the image's target but background; foreground: all but it; or all
  std::optional<std::int64_t> background_index;
  std::int64_t ignore_index = 255;
  /// A class may have several names, each a row of the class features: the class of each name, ascending. Its score is
  /// that of its best name. Empty: a row is a class.
  std::vector<std::int64_t> class_of_name;
  std::optional<BackgroundThreshold> background_threshold;  // needs background_index
};

struct SegmentationPrediction {
  at::Tensor prediction;        // [B, H, W] int64; ignore_index everywhere in an image without a candidate
  at::Tensor patch_similarity;  // [B, C, rows, columns] double, cosines
};

/// Zero-shot segmentation by patches (SPARC, section 4.4): each patch is compared with the class embeddings, the maps
/// are brought to the target's size, and each pixel takes its greatest class (the lower one at ties). patch_features
/// [B, P, D] float, P = rows * columns; class_features [C, D] float, of classes or names; target [B, H, W] int64. Throws c10::Error for
/// shapes that do not match or targets outside 0..C-1 and not ignore_index.
SegmentationPrediction zero_shot_segmentation(const at::Tensor& patch_features, const at::Tensor& class_features,
                                              const at::Tensor& target, const SegmentationOptions& options);

/// The class of each pixel: the scores are brought to the target's size, and the greatest of the candidates' counts (the
/// lower name at ties). scores [N, rows, columns] float, cosines of the N names; target [H, W] int64, which candidates
/// `present` looks at and errors are of as in zero_shot_segmentation(); of the options, grid does not count. Returns [H, W]
/// int64.
at::Tensor segment_pixels(const at::Tensor& scores, const at::Tensor& target, const SegmentationOptions& options);

/// The top left corners of square windows that cover a picture: every `stride` pixels, the last ones moved back to end
/// at its edge (mmsegmentation's slide_inference). height and width are `size` at least.
std::vector<std::array<std::int64_t, 2>> window_corners(std::int64_t height, std::int64_t width, std::int64_t size,
                                                        std::int64_t stride);

/// The scores of a picture out of those of its windows: each window's are brought to its pixels, bilinearly, and averaged
/// where windows overlap. scores [W, N, rows, columns] float of windows at `corners`, which cover the picture; returns
/// [N, height, width] float32.
at::Tensor join_windows(const at::Tensor& scores, const std::vector<std::array<std::int64_t, 2>>& corners,
                        std::int64_t size, std::int64_t height, std::int64_t width);

/// The group of each pixel: each group's weights of the patches are brought to the pixels, and the greatest counts (the
/// lower group at ties), as GroupViT's authors do it. attention [B, K, P] float; of the options, grid and upsample
/// count. Returns [B, height, width] int64.
at::Tensor group_masks(const at::Tensor& attention, std::int64_t height, std::int64_t width,
                       const SegmentationOptions& options);

/// Zero-shot segmentation by groups (Xu et al. 2022, section 3.4): each group takes the class that it is nearest to (the
/// lower one at ties), each pixel that of its group. group_features [B, K, D] and class_features [C, D] float, attention
/// as group_masks() takes it; target and errors as of zero_shot_segmentation(). Returns [B, H, W] int64.
at::Tensor zero_shot_segmentation_by_groups(const at::Tensor& group_features, const at::Tensor& attention,
                                            const at::Tensor& class_features, const at::Tensor& target,
                                            const SegmentationOptions& options);

struct SegmentationScores {
  at::Tensor image_iou;       // [B] double, mean IoU over the classes of the image's target but background; -1: none
  double image_miou = 0;      // mean over the images that have one (SPARC)
  std::int64_t images = 0;    // how many have one
  at::Tensor intersection;    // [C] int64 pixels, summed over images
  at::Tensor union_;          // [C] int64
  at::Tensor class_iou;       // [C] double; -1: union 0
  double dataset_miou = 0;    // mean of class_iou over classes with a union, but background
  double pixel_accuracy = 0;  // over all pixels that are not ignored
  // Of each image, what the scores over all images are made of:
  at::Tensor image_intersection;  // [B, C] int64 pixels
  at::Tensor image_union;         // [B, C] int64
  at::Tensor image_right;         // [B] int64 pixels with the right class
  at::Tensor image_pixels;        // [B] int64 pixels that are not ignored
};

/// Adds up what segmentation_scores() reports, batch by batch.
class SegmentationMeter {
 public:
  SegmentationMeter(std::int64_t num_classes, std::optional<std::int64_t> background_index,
                    std::int64_t ignore_index = 255);
  /// prediction, target [B, H, W] int64; returns this batch's image_iou [B].
  at::Tensor add(const at::Tensor& prediction, const at::Tensor& target);
  SegmentationScores scores() const;

 private:
  std::int64_t num_classes_;
  std::optional<std::int64_t> background_index_;
  std::int64_t ignore_index_;
  std::vector<at::Tensor> image_iou_, intersection_, union_, right_, pixels_;  // of each batch
};

/// Pixels whose target is ignore_index count nowhere; a prediction outside 0..num_classes-1 is no class.
SegmentationScores segmentation_scores(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                       std::optional<std::int64_t> background_index = std::nullopt,
                                       std::int64_t ignore_index = 255);

}  // namespace tessera::metrics
