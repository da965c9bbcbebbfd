#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// A pixel becomes background if the score of its best class is below a threshold.
struct BackgroundThreshold {
  double value = 0;
  /// If set, the threshold applies to the probability, a softmax over all names of this factor times their cosines. Otherwise
  /// it applies to the cosine.
  std::optional<double> logit_scale;
};

struct SegmentationOptions {
  std::array<std::int64_t, 2> grid{};  // rows and columns of the patches
  std::string upsample = "bilinear";   // cosines or group weights, align_corners = false; or nearest
  std::string candidates = "present";  // classes of the image's target except background; foreground: all except it; or all
  std::optional<std::int64_t> background_index;
  std::int64_t ignore_index = 255;
  /// The class of each name, ascending, if classes have several names, each with its own row of the class features. The score
  /// of a class is that of its best name. If empty, each row is a class.
  std::vector<std::int64_t> class_of_name;
  std::optional<BackgroundThreshold> background_threshold;  // needs background_index
};

struct SegmentationPrediction {
  at::Tensor prediction;        // [B, H, W] int64; ignore_index everywhere if an image has no candidate
  at::Tensor patch_similarity;  // [B, C, rows, columns] double, cosines
};

/// Zero-shot segmentation by patches (SPARC, section 4.4): compares each patch with the class embeddings, resizes the maps to
/// the target, and gives each pixel the class of greatest score (the lower one at ties). patch_features [B, P, D] float, P =
/// rows * columns; class_features [C, D] float, of classes or names; target [B, H, W] int64. Throws c10::Error if shapes do not
/// match or a target is neither in 0..C-1 nor ignore_index.
SegmentationPrediction zero_shot_segmentation(const at::Tensor& patch_features, const at::Tensor& class_features,
                                              const at::Tensor& target, const SegmentationOptions& options);

/// Returns the class of each pixel, [H, W] int64: resizes the scores to the target and takes the candidate of greatest score
/// (the lower name at ties). scores [N, rows, columns] float, cosines of the N names; target [H, W] int64, from which `present`
/// takes its candidates. Throws like zero_shot_segmentation(). The option `grid` is not used.
at::Tensor segment_pixels(const at::Tensor& scores, const at::Tensor& target, const SegmentationOptions& options);

/// Returns the top left corners of square windows that cover an image: one every `stride` pixels, the last ones moved back to
/// end at the image's edge (mmsegmentation's slide_inference). height and width are at least `size`.
std::vector<std::array<std::int64_t, 2>> window_corners(std::int64_t height, std::int64_t width, std::int64_t size,
                                                        std::int64_t stride);

/// Merges the scores of windows into those of the whole image: resizes each window's scores to its pixels, bilinearly, and
/// averages them where windows overlap. scores [W, N, rows, columns] float of windows at `corners`, which cover the image;
/// returns [N, height, width] float32.
at::Tensor join_windows(const at::Tensor& scores, const std::vector<std::array<std::int64_t, 2>>& corners,
                        std::int64_t size, std::int64_t height, std::int64_t width);

/// Returns the group of each pixel, [B, height, width] int64: resizes each group's weights of the patches to the pixels and
/// takes the greatest (the lower group at ties), as GroupViT's authors do. attention [B, K, P] float; only the options grid and
/// upsample are used.
at::Tensor group_masks(const at::Tensor& attention, std::int64_t height, std::int64_t width,
                       const SegmentationOptions& options);

/// Zero-shot segmentation by groups (Xu et al. 2022, section 3.4): each group takes its nearest class (the lower one at ties),
/// and each pixel takes the class of its group. group_features [B, K, D] and class_features [C, D] float; attention as in
/// group_masks(); target and errors as in zero_shot_segmentation(). Returns [B, H, W] int64.
at::Tensor zero_shot_segmentation_by_groups(const at::Tensor& group_features, const at::Tensor& attention,
                                            const at::Tensor& class_features, const at::Tensor& target,
                                            const SegmentationOptions& options);

struct SegmentationScores {
  at::Tensor image_iou;       // [B] double, mean IoU over the classes of the image's target except background; -1 if none
  double image_miou = 0;      // mean over the images that have an image_iou (SPARC)
  std::int64_t images = 0;    // how many images have one
  at::Tensor intersection;    // [C] int64 pixels, summed over images
  at::Tensor union_;          // [C] int64
  at::Tensor class_iou;       // [C] double; -1 if the union is 0
  double dataset_miou = 0;    // mean of class_iou over classes with a union, except background
  double pixel_accuracy = 0;  // over all pixels that are not ignored
  // The scores over all images are sums of these, per image:
  at::Tensor image_intersection;  // [B, C] int64 pixels
  at::Tensor image_union;         // [B, C] int64
  at::Tensor image_right;         // [B] int64 pixels with the right class
  at::Tensor image_pixels;        // [B] int64 pixels that are not ignored
};

/// Accumulates segmentation_scores() batch by batch.
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
  std::vector<at::Tensor> image_iou_, intersection_, union_, right_, pixels_;  // one tensor per batch
};

/// Scores predictions against targets. Pixels with the target ignore_index do not count. A prediction outside
/// 0..num_classes-1 matches no class.
SegmentationScores segmentation_scores(const at::Tensor& prediction, const at::Tensor& target, std::int64_t num_classes,
                                       std::optional<std::int64_t> background_index = std::nullopt,
                                       std::int64_t ignore_index = 255);

}  // namespace tessera::metrics
