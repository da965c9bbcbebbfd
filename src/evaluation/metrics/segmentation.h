#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::metrics {

/// A threshold for background: a pixel becomes background if the score of its best class is below the threshold.
struct BackgroundThreshold {
  double value = 0;
  /// If set, the threshold applies to a probability: the cosines are multiplied by this factor, and a softmax is taken over the names of
  /// all candidate classes. If not set, the threshold applies to the cosine.
  std::optional<double> logit_scale;
};

struct SegmentationOptions {
  std::array<std::int64_t, 2> grid{};  // numbers of rows and columns of patches
  std::string upsample = "bilinear";   // how cosines or group weights are resized: bilinear (align_corners = false) or nearest
  // which classes a pixel can get: present (those in the target, without background), foreground (all except background) or all
  std::string candidates = "present";
  std::optional<std::int64_t> background_index;
  std::int64_t ignore_index = 255;
  /// If classes can have several names: the class of each name, in ascending order. The class features then have one row for each name, and
  /// a class's score is that of its best name. If empty, each row is a class.
  std::vector<std::int64_t> class_of_name;
  std::optional<BackgroundThreshold> background_threshold;  // requires background_index
};

/// Segments an image without training (SPARC, section 4.4). Returns the class of each pixel, int64 [H, W]; all ignore_index if there are no
/// candidates. Resizes the scores of patches to the target and gives each pixel the candidate class whose name has the greatest score (at
/// ties, the name with the lower index). scores: float [N, rows, columns], cosines with N class names. target: int64 [H, W]. If
/// options.candidates is "present", the classes in the target are the candidates. Throws c10::Error if shapes do not match, or if these
/// classes are neither in 0..C-1 nor ignore_index. The option `grid` is not used.
at::Tensor segment_pixels(const at::Tensor& scores, const at::Tensor& target, const SegmentationOptions& options);

/// Returns the top left corners of square windows, with sides of `size` pixels, that together cover an image. There is a window every
/// `stride` pixels; the last windows are moved back to end at the image's edge (mmsegmentation's slide_inference). height and width must be
/// at least `size`.
std::vector<std::array<std::int64_t, 2>> window_corners(std::int64_t height, std::int64_t width, std::int64_t size, std::int64_t stride);

/// Merges the scores of windows into scores of the whole image, float32 [N, height, width]: resizes each window's scores bilinearly
/// to the window's pixels, and averages scores where windows overlap. scores: float [W, N, rows, columns], of the windows at
/// `corners`, which must cover the image.
at::Tensor join_windows(const at::Tensor& scores, const std::vector<std::array<std::int64_t, 2>>& corners,
                        std::int64_t size, std::int64_t height, std::int64_t width);

/// Returns the group of each pixel, int64 [B, height, width]. As in the code of GroupViT's authors, each group's weights for the patches
/// are resized to the pixels, and the group with the greatest weight wins (the lower group at ties). attention: float [B, K, P], the
/// weights. Only the options grid and upsample are used.
at::Tensor group_masks(const at::Tensor& attention, std::int64_t height, std::int64_t width, const SegmentationOptions& options);

/// Segments images without training, by groups (Xu et al. 2022, section 3.4): each group takes its nearest class (the lower class
/// at ties), and each pixel takes the class of its group. Returns classes, int64 [B, H, W]. group_features: float [B, K, D].
/// class_features: float [C, D]. target: int64 [B, H, W]. attention is as in group_masks(). Throws like segment_pixels().
at::Tensor zero_shot_segmentation_by_groups(const at::Tensor& group_features, const at::Tensor& attention,
                                            const at::Tensor& class_features, const at::Tensor& target,
                                            const SegmentationOptions& options);

struct SegmentationScores {
  at::Tensor image_iou;       // [B] double, mean IoU over the classes in the image's target except background; -1 if the target has none
  double image_miou = 0;      // mean over the images that have an image_iou (SPARC)
  std::int64_t images = 0;    // number of images that have an image_iou
  at::Tensor intersection;    // [C] int64, number of pixels, summed over images
  at::Tensor union_;          // [C] int64
  at::Tensor class_iou;       // [C] double; -1 if the union is 0
  double dataset_miou = 0;    // mean of class_iou over the classes whose union is not 0, except background
  double pixel_accuracy = 0;  // share of right pixels among the pixels that are not ignored
  // Counts per image, from which the scores over all images are computed:
  at::Tensor image_intersection;  // [B, C] int64, number of pixels
  at::Tensor image_union;         // [B, C] int64
  at::Tensor image_right;         // [B] int64, number of pixels with the right class
  at::Tensor image_pixels;        // [B] int64, number of pixels that are not ignored
};

/// Scores predictions against targets, batch by batch. Pixels with the target ignore_index do not count. A prediction outside
/// 0..num_classes-1 matches no class.
class SegmentationMeter {
 public:
  SegmentationMeter(std::int64_t num_classes, std::optional<std::int64_t> background_index, std::int64_t ignore_index = 255);
  /// Adds a batch and returns its image_iou [B]. prediction and target: int64 [B, H, W].
  at::Tensor add(const at::Tensor& prediction, const at::Tensor& target);
  SegmentationScores scores() const;

 private:
  std::int64_t num_classes_;
  std::optional<std::int64_t> background_index_;
  std::int64_t ignore_index_;
  std::vector<at::Tensor> image_iou_, intersection_, union_, right_, pixels_;  // one tensor per batch
};

}  // namespace tessera::metrics
