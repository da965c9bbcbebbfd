#include <algorithm>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/segmentation.h"

namespace tessera::metrics {
namespace {

/// Resizes maps [C, rows, columns] to [C, height, width].
at::Tensor enlarge(const at::Tensor& maps, std::int64_t height, std::int64_t width, bool bilinear) {
  if (bilinear) return at::upsample_bilinear2d(maps.unsqueeze(0), {height, width}, /*align_corners=*/false).squeeze(0);
  // Computes source = floor(i * in / out) in integers, because torch's nearest mode rounds a float32 factor.
  const auto options = maps.options().dtype(at::kLong);
  const at::Tensor rows = at::arange(height, options).mul(maps.size(1)).floor_divide(height);
  const at::Tensor columns = at::arange(width, options).mul(maps.size(2)).floor_divide(width);
  return maps.index_select(1, rows).index_select(2, columns);
}

/// Returns the classes that occur in one target [H, W], except background, in ascending order.
at::Tensor present_classes(const at::Tensor& target, std::int64_t num_classes, const SegmentationOptions& options) {
  at::Tensor counted = target.ne(options.ignore_index);
  if (options.background_index) counted = at::logical_and(counted, target.ne(*options.background_index));
  return at::bincount(target.masked_select(counted), {}, num_classes).nonzero().squeeze(1);
}

void check_targets(const char* who, const at::Tensor& target, std::int64_t num_classes, std::int64_t ignore_index) {
  const at::Tensor wrong = at::logical_and(target.ne(ignore_index), at::logical_or(target.lt(0), target.ge(num_classes)));
  TORCH_CHECK(!wrong.any().item<bool>(), who, ": target must lie in 0..", num_classes - 1, " or be ", ignore_index);
}

/// For each pixel, the name with the highest score, and this score; both are [H, W].
struct BestName {
  at::Tensor name;
  at::Tensor score;
  at::Tensor log_sum;  // log of the sum of exp(factor * score) over all names; undefined without a factor
};

/// For each pixel, finds the best of `names`, which must be in ascending order. Works on a few names at a time, so that the scores
/// [N, H, W] of many names are never all in memory.
BestName best_name(const at::Tensor& maps, const at::Tensor& names, std::int64_t height, std::int64_t width,
                   bool bilinear, std::optional<double> factor) {
  BestName best;
  for_tiles(names.size(0), height * width, [&](std::int64_t begin, std::int64_t end) {
    const at::Tensor some = names.slice(0, begin, end);
    const at::Tensor scores = at::nan_to_num(enlarge(maps.index_select(0, some), height, width, bilinear), -INFINITY);
    const at::Tensor place = scores.argmax(0, true);
    const at::Tensor value = scores.gather(0, place).squeeze(0);
    const at::Tensor name = some.index_select(0, place.flatten()).view({height, width});
    const at::Tensor log_sum = factor ? (*factor * scores).logsumexp(0) : at::Tensor();
    if (!best.name.defined()) {
      best = {name, value, log_sum};
      return;
    }
    const at::Tensor better = value.gt(best.score);
    best.name = at::where(better, name, best.name);
    best.score = at::where(better, value, best.score);
    if (factor) best.log_sum = at::logaddexp(best.log_sum, log_sum);
  });
  return best;
}

void check_upsample(const char* who, const SegmentationOptions& options) {
  TORCH_CHECK(options.upsample == "bilinear" || options.upsample == "nearest", who, ": upsample is ", options.upsample,
              ", expected bilinear or nearest");
}

std::int64_t count_classes(std::int64_t names, const SegmentationOptions& options) {
  return options.class_of_name.empty() ? names : options.class_of_name.back() + 1;
}

/// Returns the class of each name, [N] int64.
at::Tensor classes_of_names(std::int64_t names, const SegmentationOptions& options, const at::Device& device) {
  if (options.class_of_name.empty()) return at::arange(names, at::TensorOptions(at::kLong).device(device));
  return at::tensor(options.class_of_name, at::kLong).to(device);
}

void check_names(const char* who, std::int64_t names, const at::Tensor& target, const SegmentationOptions& options) {
  const std::vector<std::int64_t>& classes = options.class_of_name;
  TORCH_CHECK(classes.empty() || std::ssize(classes) == names, who, ": class_of_name lists ", classes.size(),
              " names, but there are ", names);
  TORCH_CHECK(std::is_sorted(classes.begin(), classes.end()), who, ": class_of_name must be ascending");
  TORCH_CHECK(!options.background_threshold || options.background_index, who, ": background_threshold needs background_index");
  TORCH_CHECK(options.candidates == "present" || options.candidates == "foreground" || options.candidates == "all", who,
              ": candidates is ", options.candidates, ", expected present, foreground or all");
  if (options.candidates == "present") check_targets(who, target, count_classes(names, options), options.ignore_index);
}

/// Returns the indices of the names that can be predicted for the pixels of one image, in ascending order.
at::Tensor find_candidates(const at::Tensor& target, std::int64_t names, const SegmentationOptions& options) {
  const at::Tensor classes = classes_of_names(names, options, target.device());
  if (options.candidates == "present")
    return at::isin(classes, present_classes(target, count_classes(names, options), options)).nonzero().squeeze(1);
  if (options.candidates == "foreground" && options.background_index)
    return classes.ne(*options.background_index).nonzero().squeeze(1);
  return at::arange(names, target.options());
}

}  // namespace

at::Tensor segment_pixels(const at::Tensor& scores, const at::Tensor& target, const SegmentationOptions& options) {
  TORCH_CHECK(scores.dim() == 3 && target.dim() == 2, "segment_pixels: expected scores [N, rows, columns] and target ",
              "[H, W], got ", scores.sizes(), " and ", target.sizes());
  check_upsample("segment_pixels", options);
  const at::Tensor truth = target.to(scores.device(), at::kLong);
  check_names("segment_pixels", scores.size(0), truth, options);
  const at::Tensor names = find_candidates(truth, scores.size(0), options);
  if (names.numel() == 0) return at::full_like(truth, options.ignore_index);
  const std::optional<BackgroundThreshold>& threshold = options.background_threshold;
  const std::optional<double> factor = threshold ? threshold->logit_scale : std::nullopt;
  const BestName best = best_name(scores, names, truth.size(0), truth.size(1), options.upsample == "bilinear", factor);
  const at::Tensor found = classes_of_names(scores.size(0), options, scores.device()).index_select(0, best.name.flatten()).view_as(truth);
  if (!threshold) return found;
  const at::Tensor certainty = factor ? (*factor * best.score - best.log_sum).exp() : best.score;
  return found.masked_fill(certainty.lt(threshold->value), *options.background_index);
}

std::vector<std::array<std::int64_t, 2>> window_corners(std::int64_t height, std::int64_t width, std::int64_t size, std::int64_t stride) {
  TORCH_CHECK(size > 0 && stride > 0 && height >= size && width >= size, "window_corners: windows of ", size, " every ",
              stride, " pixels do not cover ", height, " x ", width);
  const auto count = [&](std::int64_t side) { return (side - size + stride - 1) / stride + 1; };
  std::vector<std::array<std::int64_t, 2>> corners;
  for (std::int64_t row = 0; row < count(height); ++row)
    for (std::int64_t column = 0; column < count(width); ++column)
      corners.push_back({std::min(row * stride, height - size), std::min(column * stride, width - size)});
  return corners;
}

at::Tensor join_windows(const at::Tensor& scores, const std::vector<std::array<std::int64_t, 2>>& corners,
                        std::int64_t size, std::int64_t height, std::int64_t width) {
  TORCH_CHECK(scores.dim() == 4 && scores.size(0) == std::ssize(corners), "join_windows: expected scores [",
              corners.size(), ", N, rows, columns], got ", scores.sizes());
  at::Tensor sum = at::zeros({scores.size(1), height, width}, at::kFloat), count = at::zeros({height, width}, at::kFloat);
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const auto [top, left] = corners[i];
    const at::Tensor pixels = enlarge(scores[static_cast<std::int64_t>(i)].to(at::kFloat), size, size, true);
    sum.narrow(1, top, size).narrow(2, left, size).add_(pixels);
    count.narrow(0, top, size).narrow(1, left, size).add_(1);
  }
  return sum.div_(count);
}

at::Tensor group_masks(const at::Tensor& attention, std::int64_t height, std::int64_t width, const SegmentationOptions& options) {
  const auto [rows, columns] = options.grid;
  TORCH_CHECK(attention.dim() == 3 && attention.size(2) == rows * columns, "group_masks: attention must be [B, K, ",
              rows, " * ", columns, "], got ", attention.sizes());
  check_upsample("group_masks", options);
  std::vector<at::Tensor> masks;
  for (const at::Tensor& weights : attention.to(at::kDouble).unbind()) {
    const at::Tensor maps = enlarge(weights.view({-1, rows, columns}), height, width, options.upsample == "bilinear");
    masks.push_back(maps.argmax(0));
  }
  return at::stack(masks);
}

at::Tensor zero_shot_segmentation_by_groups(const at::Tensor& group_features, const at::Tensor& attention,
                                            const at::Tensor& class_features, const at::Tensor& target,
                                            const SegmentationOptions& options) {
  constexpr const char* kWho = "zero_shot_segmentation_by_groups";
  TORCH_CHECK(group_features.dim() == 3 && attention.dim() == 3 && group_features.size(0) == attention.size(0) &&
                  group_features.size(1) == attention.size(1),
              kWho, ": group_features [B, K, D] and attention [B, K, P] must agree, got ", group_features.sizes(),
              " and ", attention.sizes());
  TORCH_CHECK(class_features.dim() == 2 && class_features.size(1) == group_features.size(2), kWho, ": class_features must be [C, ",
              group_features.size(2), "], got ", class_features.sizes());
  TORCH_CHECK(target.dim() == 3 && target.size(0) == group_features.size(0), kWho, ": target must be [", group_features.size(0),
              ", H, W], got ", target.sizes());
  check_upsample(kWho, options);
  check_names(kWho, class_features.size(0), target, options);
  const at::Tensor truth = target.to(group_features.device(), at::kLong);
  const at::Tensor cosines = CosinesWith(class_features)(group_features);  // [B, K, C]
  const at::Tensor masks = group_masks(attention, truth.size(1), truth.size(2), options);
  at::Tensor prediction = at::full_like(truth, options.ignore_index);
  for (std::int64_t b = 0; b < truth.size(0); ++b) {
    const at::Tensor names = find_candidates(truth[b], class_features.size(0), options);
    if (names.numel() == 0) continue;
    const at::Tensor name_of_group = names.index_select(0, cosines[b].index_select(1, names).argmax(1));
    const at::Tensor class_of_group = classes_of_names(class_features.size(0), options, truth.device()).index_select(0, name_of_group);
    prediction[b].copy_(class_of_group.index_select(0, masks[b].flatten()).view_as(truth[b]));
  }
  return prediction;
}

SegmentationMeter::SegmentationMeter(std::int64_t num_classes, std::optional<std::int64_t> background_index,
                                     std::int64_t ignore_index)
    : num_classes_(num_classes),
      background_index_(background_index),
      ignore_index_(ignore_index) {}

at::Tensor SegmentationMeter::add(const at::Tensor& prediction, const at::Tensor& target) {
  TORCH_CHECK(target.dim() == 3 && prediction.sizes() == target.sizes(),
              "segmentation_scores: prediction and target must be [B, H, W], got ", prediction.sizes(), " and ",
              target.sizes());
  const std::int64_t images = target.size(0);
  const at::Tensor guess = prediction.to(at::kCPU, at::kLong);
  const at::Tensor truth = target.to(at::kCPU, at::kLong);
  check_targets("segmentation_scores", truth, num_classes_, ignore_index_);
  const at::Tensor counted = truth.ne(ignore_index_);
  const at::Tensor right = at::logical_and(counted, guess.eq(truth));
  const at::Tensor is_class = at::logical_and(guess.ge(0), guess.lt(num_classes_));
  const at::Tensor offset = at::arange(images, at::kLong).view({images, 1, 1}) * num_classes_;
  const auto count = [&](const at::Tensor& labels, const at::Tensor& where) {
    return at::bincount((labels + offset).masked_select(where), {}, images * num_classes_).view({images, num_classes_});
  };
  const at::Tensor in_target = count(truth, counted);  // [B, C] pixels
  const at::Tensor both = count(truth, right);
  const at::Tensor either = in_target + count(guess, at::logical_and(counted, is_class)) - both;

  at::Tensor present = in_target.gt(0);
  if (background_index_ && *background_index_ >= 0 && *background_index_ < num_classes_) {
    present.select(1, *background_index_).fill_(false);
  }
  const at::Tensor iou = at::where(present, both.to(at::kDouble) / either.clamp_min(1).to(at::kDouble), 0.0);
  const at::Tensor classes = present.sum(1);
  const at::Tensor mean = at::where(classes.gt(0), iou.sum(1) / classes.clamp_min(1).to(at::kDouble), -1.0);

  image_iou_.push_back(mean);
  intersection_.push_back(both);
  union_.push_back(either);
  right_.push_back(right.flatten(1).sum(1));
  pixels_.push_back(counted.flatten(1).sum(1));
  return mean;
}

SegmentationScores SegmentationMeter::scores() const {
  SegmentationScores out;
  const auto all = [](const std::vector<at::Tensor>& batches, const at::Tensor& none) {
    return batches.empty() ? none : at::cat(batches);
  };
  out.image_iou = all(image_iou_, at::empty({0}, at::kDouble));
  out.image_intersection = all(intersection_, at::empty({0, num_classes_}, at::kLong));
  out.image_union = all(union_, at::empty({0, num_classes_}, at::kLong));
  out.image_right = all(right_, at::empty({0}, at::kLong));
  out.image_pixels = all(pixels_, at::empty({0}, at::kLong));
  out.image_miou = mean_of_present(out.image_iou);
  out.images = out.image_iou.ne(-1).sum().item<std::int64_t>();
  out.intersection = out.image_intersection.sum(0);
  out.union_ = out.image_union.sum(0);
  out.class_iou = at::where(out.union_.gt(0), out.intersection.to(at::kDouble) / out.union_.clamp_min(1).to(at::kDouble), -1.0);
  out.dataset_miou = mean_of_present(out.class_iou, background_index_.value_or(-1));
  const auto pixels = out.image_pixels.sum().item<std::int64_t>();
  out.pixel_accuracy = pixels > 0 ? out.image_right.sum().item<double>() / static_cast<double>(pixels) : 0.0;
  return out;
}

}  // namespace tessera::metrics
