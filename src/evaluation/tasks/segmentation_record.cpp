#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>

#include <ATen/ATen.h>

#include "src/base/printable.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/segmentation_record.h"
#include "src/report/cards.h"
#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

/// Names of classes that stand for pixels without a class, in Cityscapes, COCO-Stuff, CamVid, VOC, labelme's files and similar data.
constexpr std::array<std::string_view, 13> kNoClass = {
    "void",       "unlabeled", "unlabelled", "ignore",     "ignored",     "unannotated",         "unknown",
    "don't care", "no data",   "no label",   "out of roi", "ego vehicle", "rectification border"};

/// Returns the name in lower case, with spaces for hyphens and underscores: "background" for "__Background__".
std::string plain_name(std::string name) {
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return letter == '_' || letter == '-' ? ' ' : static_cast<char>(std::tolower(letter));
  });
  return std::string(strip(name));
}

std::optional<std::int64_t> called_background(const std::vector<std::string>& names) {
  const auto found = std::ranges::find_if(names, [](const std::string& name) { return plain_name(name) == "background"; });
  return found == names.end() ? std::nullopt : std::optional(found - names.begin());
}

/// Returns the class called background by the task or, if there is none, by the data.
std::optional<std::int64_t> called_background(const MaskClasses& classes) {
  const auto called = called_background(classes.names);
  return called ? called : called_background(classes.own_names);
}

bool says_no_class(const std::string& name) {
  return contains(kNoClass, plain_name(name));
}

std::vector<std::uint8_t> to_bytes(const at::Tensor& mask) {
  return to_vector<std::uint8_t>(mask.to(at::kByte));
}

/// Makes a sheet for the report, shrunk to display size. target and found: classes, [H, W]; target is undefined if there is no mask.
nlohmann::json make_sheet(const Image& image, const at::Tensor& target, const at::Tensor& found, double iou, const std::string& name,
                        std::optional<std::int64_t> background) {
  constexpr std::int64_t kShown = 224;  // maximum length of an example's shorter side, in pixels
  const double ratio = std::min(1.0, static_cast<double>(kShown) / static_cast<double>(std::min(image.height, image.width)));
  Preprocessing settings;
  settings.resize_mode = "squash";
  settings.image_size = {std::llround(static_cast<double>(image.height) * ratio), std::llround(static_cast<double>(image.width) * ratio)};
  const Image shown = preprocess(image, settings);
  nlohmann::json out = {{"images", {report::image_part(shown, name)}}};
  std::set<std::int64_t> classes;
  const auto add = [&](const at::Tensor& mask, const std::string& caption) {
    const std::vector<std::uint8_t> smaller = preprocess_mask(to_bytes(mask), image.height, image.width, settings);
    for (const std::uint8_t value : smaller)
      if (value != kIgnoredClass && value != background.value_or(kIgnoredClass)) classes.insert(value);
    out["images"].push_back(report::mask_part(shown, smaller, caption));
  };
  if (target.defined()) add(target, "ground truth");
  const std::string score = concat(" \u00b7 IoU ", iou < 0 ? "none" : fixed(100 * iou, 1) + "%");
  add(found, "prediction" + (target.defined() ? score : ""));
  out["legend"] = classes;
  return out;
}

void check_mask(const std::vector<std::uint8_t>& mask, const std::string& key, const MaskClasses& classes) {
  const std::int64_t count = classes.count();
  for (const std::uint8_t value : mask) {
    if (value < count || value == kIgnoredClass) continue;
    throw TaskMisfit(concat("the mask of sample ", key, " of ", classes.source->describe(), " holds class ",
                            static_cast<int>(value), ", but there are only ", count, " class names (0 to ", count - 1,
                            "): list one for each value in ", classes.setting));
  }
}

std::vector<report::Outcomes> outcomes_of_images(const metrics::SegmentationScores& scores, std::optional<std::int64_t> background) {
  at::Tensor present = scores.image_union.gt(0);  // [B, C]
  if (background) present.select(1, *background).fill_(false);
  const at::Tensor place = present.nonzero();  // [E, 2]: image, class
  return {report::mean_outcomes("image_miou", to_vector<double>(scores.image_iou)),
          make_outcomes("dataset_miou", {.part = scores.image_intersection.masked_select(present),
                                       .whole = scores.image_union.masked_select(present),
                                       .sample = place.select(1, 0),
                                       .group = place.select(1, 1)}),
          make_outcomes("pixel_accuracy", {.part = scores.image_right, .whole = scores.image_pixels})};
}

}  // namespace

std::optional<std::int64_t> MaskClasses::background() const {
  const std::int64_t set = source->background_class();
  const auto index = set >= 0 ? std::optional(set) : called_background(*this);
  return index && is_ignored(*index) ? std::nullopt : index;
}

std::vector<std::string> MaskClasses::notes() const {
  std::vector<std::string> out;
  const auto name_of = [&](std::int64_t index) {
    const auto place = static_cast<std::size_t>(index);
    const std::string own = own_names.empty() || own_names[place] == names[place]
                                ? ""
                                : concat(" (in the data: ", printable(own_names[place], 60), ")");
    return printable(names[place], 60) + own;
  };
  const auto class_text = [&](std::int64_t index) {
    return concat("class ", index, index < count() ? concat(", ", name_of(index), ",") : "");
  };
  const std::int64_t set = source->background_class();
  const auto index = background(), called = called_background(*this);
  if (!index)
    out.push_back(
        concat("no class counts as the background",
               set < 0 && !called ? ": the data set no background_class, and no class is called background" : ""));
  else if (set < 0)
    out.push_back(concat(class_text(*index), " counts as the background because of its name"));
  else
    out.push_back(concat(class_text(*index), " counts as the background (background_class of the data)",
                         called && *called != set ? concat(", although ", class_text(*called), " is called so") : ""));
  std::vector<std::string> without;
  for (std::int64_t c = 0; c < count(); ++c)
    if (is_ignored(c)) without.push_back(name_of(c));
  if (!without.empty())
    out.push_back(concat("pixels of ", join_names(without), " are ignored, and these classes are not predicted"));
  return out;
}

MaskClasses mask_classes(std::shared_ptr<const Source> source, std::vector<std::string> names,
                         const std::string& setting, std::vector<std::string> ignored, std::vector<std::string> own) {
  if (own.size() != names.size()) own.clear();
  const std::int64_t background = source->background_class();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (static_cast<std::int64_t>(i) != background &&
        (says_no_class(names[i]) || (!own.empty() && says_no_class(own[i]))) && !contains(ignored, names[i]))
      ignored.push_back(names[i]);
  return {std::move(source), std::move(names), setting, std::move(ignored), true, std::move(own)};
}

bool MaskClasses::is_ignored(std::int64_t value) const {
  return value < count() && contains(ignored, names[static_cast<std::size_t>(value)]);
}

Required masked() {
  return {[](const Sample& sample) { return !sample.mask.empty(); }, "no_mask", "a mask", "mask"};
}

void check_masks(const MaskClasses& classes, const std::string& setting, std::int64_t max_samples) {
  check_samples(*classes.source, setting, max_samples, masked(),
                [&](const Sample& sample) { check_mask(sample.mask, sample.key, classes); });
}

at::Tensor mask_of(const std::vector<std::uint8_t>& mask, config::Size size, const std::string& key, const MaskClasses& classes) {
  if (mask.empty()) return at::full({size.height, size.width}, kIgnoredClass, at::kLong);
  check_mask(mask, key, classes);
  at::Tensor out = at::from_blob(const_cast<std::uint8_t*>(mask.data()), {size.height, size.width}, at::kByte).to(at::kLong);
  for (std::int64_t c = 0; c < classes.count(); ++c)
    if (classes.is_ignored(c)) out.masked_fill_(out == c, kIgnoredClass);
  return out;
}

std::vector<at::Tensor> make_masks(const std::vector<EvaluationSample>& samples, const MaskClasses& classes) {
  std::vector<at::Tensor> targets;
  for (const EvaluationSample& sample : samples)
    targets.push_back(mask_of(sample.mask, {sample.pixels.size(1), sample.pixels.size(2)}, sample.sample.key, classes));
  return targets;
}

SegmentationRecord::SegmentationRecord(MaskClasses classes, std::int64_t total, bool images)
    : classes_(std::move(classes)),
      meter_(classes_.count(), classes_.background(), kIgnoredClass),
      examples_(total),
      images_(images),
      in_masks_(at::zeros({kIgnoredClass + 1}, at::kBool)) {}

void SegmentationRecord::add(const EvaluationSample& sample, const at::Tensor& target, const at::Tensor& found,
                             const std::function<Image()>& image) {
  const double iou = meter_.add(found.unsqueeze(0), target.unsqueeze(0)).item<double>();
  in_masks_.index_fill_(0, std::get<0>(at::_unique(target)), true);
  if (images_ && examples_.choose(sample.index))
    shown_.push_back(make_sheet(image(), classes_.drawn ? target : at::Tensor(), found, iou, sample.sample.key, classes_.background()));
}

std::vector<std::string> SegmentationRecord::notes() const {
  std::vector<std::string> out = classes_.notes(), absent;
  for (std::int64_t c = 0; c < classes_.count(); ++c)
    if (!in_masks_[c].item<bool>() && !classes_.is_ignored(c))
      absent.push_back(classes_.names[static_cast<std::size_t>(c)]);
  constexpr std::size_t kMost = 10;
  const std::size_t count = absent.size();
  if (count > kMost) absent.resize(kMost);
  if (count > 0)
    out.push_back(concat(count, " of ", classes_.count(), " classes occur in no mask: ", join_names(absent), count > kMost ? ", ..." : ""));
  return out;
}

void SegmentationRecord::write(TaskResult& result) {
  const std::optional<std::int64_t> background = classes_.background();
  add_items({{"type", "overlay"},
             {"title", "Overlays"},
             {"note", "Each image with its true mask, if it has one, and its predicted mask, in the colors of the legend below it; classes "
                      "named after a color have that color. IoU: the mean over the image's classes."},
             {"layout", "overlays"},
             {"columns", "three"},
             {"classes", classes_.names},
             {"background", background.value_or(-1)}},
            shown_, result);
  if (!classes_.drawn) {
    result.notes.push_back("no sample has a mask: each pixel is colored by the class whose text is nearest, and nothing is measured");
    return;
  }
  const std::vector<std::string> own = notes();
  result.notes.insert(result.notes.end(), own.begin(), own.end());
  const metrics::SegmentationScores scores = meter_.scores();
  result.add_share("image_miou", scores.image_miou);
  result.add_share("dataset_miou", scores.dataset_miou);
  result.add_share("pixel_accuracy", scores.pixel_accuracy);
  if (background) result.add_share("dataset_miou_with_background", metrics::mean_of_present(scores.class_iou));
  result.outcomes = outcomes_of_images(scores, background);
  if (!images_) return;
  const at::Tensor shares = scores.class_iou.clone();
  if (background) shares[*background] = -1;
  add_bars("IoU by class", classes_.names, shares, result);
}

}  // namespace tessera
