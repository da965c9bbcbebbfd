#include "src/evaluation/tasks/caption_decoding.h"
#include "src/evaluation/tasks/data_task.h"
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

struct ReferringSettings {
  TaskData data;
};

template <class Visitor>
void fields(Visitor& v, ReferringSettings& s) {
  data_fields(v, s.data);
}

constexpr double kFound = 0.5;  // a box counts as found if its IoU is at least this

/// A box: left, top, right and bottom as fractions of the image size.
using Corners = std::array<double, 4>;

/// Returns the box of an object after the evaluation transform, clipped at the image's borders; nullopt if the object is not
/// visible.
std::optional<Corners> shown(const ObjectAnnotation& object, const Image& image, const Preprocessing& preprocessing) {
  Corners out = preprocessed_box(object.box, image.height, image.width, preprocessing);
  for (double& corner : out) corner = std::clamp(corner, 0.0, 1.0);
  if (out[0] >= out[2] || out[1] >= out[3]) return std::nullopt;
  return out;
}

double compute_iou(const Corners& a, const Corners& b) {
  const double width = std::min(a[2], b[2]) - std::max(a[0], b[0]), height = std::min(a[3], b[3]) - std::max(a[1], b[1]);
  const double both = std::max(0.0, width) * std::max(0.0, height);
  // The corners of a predicted box may be swapped, in which case its area is 0.
  const auto area = [](const Corners& box) { return std::max(0.0, box[2] - box[0]) * std::max(0.0, box[3] - box[1]); };
  return both / (area(a) + area(b) - both);
}

bool has_phrase_and_box(const ObjectAnnotation& object) {
  return !object.phrase.empty() && object.box[2] > 0 && object.box[3] > 0;
}

Required with_boxed_phrases() {
  return {[](const Sample& sample) { return std::ranges::any_of(sample.objects, has_phrase_and_box); }, "no_boxes",
          "an object with a phrase and a box"};
}

/// Measures how well the captioning objective's decoder locates the object that a phrase names.
class ReferringTask final : public DataTask<ReferringSettings> {
 public:
  bool uses_texts() const override { return false; }

  void check(const EvaluationContext& context) const override {
    decoder(context);
    DataTask::check(context);
  }

  std::vector<std::string> metric_names(const Embedder& /*embedder*/) const override { return {"accuracy", "mean_iou"}; }

  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const std::shared_ptr<Captioning> captioning = decoder(context);
    if (embedder.tokenizer() == nullptr) user_error("referring: the model has no tokenizer");
    Pass pass = pass_over_data(embedder, context, {.encoder_tokens = true});
    pass.reads_pixels = false;
    TaskResult result;
    std::vector<double> overlaps;
    std::vector<std::int64_t> owners;
    std::int64_t image = 0;
    pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
      for (std::size_t i = 0; i < samples.size(); ++i, ++image) {
        const TowerFeatures own = select_rows(features, {static_cast<std::int64_t>(i)});
        for (const double overlap : measure_overlaps(samples[i], own, *captioning, embedder)) {
          overlaps.push_back(overlap);
          owners.push_back(image);
        }
      }
    });
    if (overlaps.empty())
      user_error("referring: no box of ", result.data, " is visible after the evaluation transform: see model.preprocessing.resize_mode");
    const at::Tensor iou = at::tensor(overlaps, at::kDouble), owner = at::tensor(owners, at::kLong);
    for (report::Outcomes outcomes : {make_outcomes("accuracy", {.part = iou >= kFound, .sample = owner}),
                                      make_outcomes("mean_iou", {.part = iou, .sample = owner})}) {
      result.add_share(outcomes.metric, report::value_of(outcomes));
      result.outcomes.push_back(std::move(outcomes));
    }
    result.add_number("boxes", static_cast<double>(overlaps.size()));
    return result;
  }

 private:
  Required required() const override { return with_boxed_phrases(); }

  static std::shared_ptr<Captioning> decoder(const EvaluationContext& context) {
    auto captioning = make_captioning(context, "referring");
    if (captioning->settings().referring_weight == 0)
      throw TaskMisfit("referring: the decoder has not learned to find boxes (referring_weight of the objective captioning is 0): "
                       "leave the task out");
    return captioning;
  }

  /// Returns, for each object of an image, the IoU of its box with the box that the decoder finds for its phrase. `features` are
  /// the image's features.
  static std::vector<double> measure_overlaps(const EvaluationSample& sample, const TowerFeatures& features, Captioning& captioning,
                                         const Embedder& embedder) {
    std::vector<std::string> phrases;
    std::vector<Corners> boxes;
    for (const ObjectAnnotation& object : sample.sample.objects) {
      if (!has_phrase_and_box(object)) continue;
      const auto corners = shown(object, sample.sample.image, embedder.preprocessing());
      if (!corners) continue;
      phrases.push_back(object.phrase);
      boxes.push_back(*corners);
    }
    if (phrases.empty()) return {};
    const TowerInput input = on_device_of(captioning, embedder.tokenizer()->encode_batch(phrases));
    const at::Tensor found = captioning.locate(on_device_of(captioning, features), input.ids.unsqueeze(0), input.mask.unsqueeze(0))
                                 .squeeze(0).to(at::kCPU, at::kDouble);
    std::vector<double> out;
    for (std::size_t r = 0; r < boxes.size(); ++r) {
      const auto corners = to_vector<double>(found[static_cast<std::int64_t>(r)]);
      out.push_back(compute_iou(boxes[r], {corners[0], corners[1], corners[2], corners[3]}));
    }
    return out;
  }
};

}  // namespace

void add_referring(TaskRegistry& list) {
  add_task<ReferringTask>(
      list, "referring", "boxes that the captioning objective's decoder finds for phrases (LocCa)",
      "accuracy: the share of boxes that the decoder finds from their phrase with an IoU (overlap divided by union) of at least 0.5. "
      "mean_iou: the mean of the IoU.");
}

}  // namespace tessera
