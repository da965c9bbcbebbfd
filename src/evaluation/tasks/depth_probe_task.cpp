// The task depth_probe, which predicts depth from frozen patch features by a linear map.
#include <cmath>

#include "src/evaluation/tasks/data_task.h"

namespace tessera {
namespace {

struct DepthProbeSettings : TrainTestData {
  double l2 = 1e-4;
  double nearest = 0.001;
  double farthest = 10;
};

template <class Visitor>
void fields(Visitor& v, DepthProbeSettings& s) {
  train_test_fields(v, s, "data set with depths to fit the map on; null: the run's training data");
  v("l2", s.l2, "weight of the L2 penalty of the map, for features scaled to standard deviation 1", config::at_least(0));
  v("nearest", s.nearest, "smallest depth in meters; closer pixels do not count, and predictions are at least this", config::above(0));
  v("farthest", s.farthest, "greatest depth in meters; farther pixels do not count, and predictions are at most this", config::above(0));
}

std::optional<config::Problem> validate(const DepthProbeSettings& s) {
  if (s.nearest < s.farthest) return std::nullopt;
  return config::Problem{"nearest", concat("is ", s.nearest, ", expected less than farthest, ", s.farthest)};
}

Required with_depth() {
  return {[](const Sample& sample) { return !sample.depth.empty(); }, "no_depth", "depths", "depth"};
}

/// Returns the depths of the preprocessed image, float [H, W].
at::Tensor depth_of(const EvaluationSample& sample) {
  return at::tensor(sample.depth).view({sample.pixels.size(1), sample.pixels.size(2)});
}

/// Fits a linear map by least squares with an L2 penalty. Keeps only sums, so memory does not grow with the data.
class RidgeFit {
 public:
  /// Adds samples. features: [N, D]. targets: [N].
  void add(const at::Tensor& features, const at::Tensor& targets) {
    const at::Tensor x = at::cat({features.to(at::kDouble), at::ones({features.size(0), 1}, at::kDouble)}, 1);
    const at::Tensor moments = x.t().mm(x), products = x.t().mv(targets.to(at::kDouble));
    moments_ = moments_.defined() ? moments_ + moments : moments;
    products_ = products_.defined() ? products_ + products : products;
  }
  std::int64_t count() const {
    return moments_.defined() ? std::llround(moments_[-1][-1].item<double>()) : 0;
  }
  /// Minimizes mean (w x + b - y)^2 + l2 |w * deviation|^2, where deviation is the standard deviation of each feature. Returns w
  /// and b in one tensor, double [D + 1].
  at::Tensor solve(double l2) const {
    const at::Tensor moments = moments_ / count(), products = products_ / count();
    const std::int64_t width = moments.size(0) - 1;
    const at::Tensor mean = moments[-1].slice(0, 0, width);
    const at::Tensor covariance = moments.slice(0, 0, width).slice(1, 0, width) - at::outer(mean, mean);
    const at::Tensor scale = covariance.diagonal().clamp_min(kLeastVariance).sqrt();
    const at::Tensor left = covariance / at::outer(scale, scale) + (l2 + kLeastVariance) * at::eye(width, at::kDouble);
    const at::Tensor right = (products.slice(0, 0, width) - mean * products[-1]) / scale;
    const at::Tensor weight = at::linalg_solve(left, right) / scale;
    return at::cat({weight, (products[-1] - weight.dot(mean)).view(1)});
  }

 private:
  static constexpr double kLeastVariance = 1e-12;
  at::Tensor moments_;   // sum of z z^T over all samples, where z is the sample's features with a 1 appended
  at::Tensor products_;  // sum of y z over all samples, where y is the sample's target and z its features with a 1 appended
};

/// The scores of each image, averaged over its pixels.
struct DepthScores {
  std::vector<double> rms_error, relative_error, delta1_accuracy;

  /// Adds an image without known depths. Such an image does not count.
  void add_none() {
    for (auto* values : {&rms_error, &relative_error, &delta1_accuracy}) values->push_back(-1);
  }
  /// Adds an image with N known depths. predicted and truth: [N], in meters.
  void add(const at::Tensor& predicted, const at::Tensor& truth) {
    rms_error.push_back((predicted - truth).square().mean().sqrt().item<double>());
    relative_error.push_back(((predicted - truth).abs() / truth).mean().item<double>());
    const at::Tensor ratio = at::maximum(predicted / truth, truth / predicted);
    delta1_accuracy.push_back((ratio < 1.25).to(at::kDouble).mean().item<double>());
  }
};

class DepthProbeTask final : public TrainTestTask<DepthProbeSettings> {
 public:
  TaskResult run(const Embedder& embedder, const EvaluationContext& context) const override {
    const Pass train = train_pass(embedder, context, {.encoder_tokens = true});
    RidgeFit fit;
    TaskResult uncounted;
    train.run(uncounted, [&](const auto& samples, const TowerFeatures& features) { learn(samples, features, embedder, fit); });
    if (fit.count() == 0) user_error("depth_probe: no patch of the training data has a known depth in range");
    const at::Tensor map = fit.solve(settings_.l2);
    TaskResult result;
    DepthScores scores;
    test_pass(embedder, context, {.encoder_tokens = true}).run(result, [&](const auto& samples, const TowerFeatures& features) {
      measure(samples, features, embedder, map, scores);
    });
    result.data += concat(" (fitted on ", with_thousands(fit.count()), " patches of ", train.source->describe(), ")");
    for (const auto& [metric, values] : {std::pair{"rms_error", &scores.rms_error},
                                         {"relative_error", &scores.relative_error},
                                         {"delta1_accuracy", &scores.delta1_accuracy}})
      result.outcomes.push_back(report::mean_outcomes(metric, *values));
    result.add_number("rms_error", report::value_of(result.outcomes[0]), MetricRule::Better::lower);
    result.add_number("relative_error", report::value_of(result.outcomes[1]), MetricRule::Better::lower);
    result.add_share("delta1_accuracy", report::value_of(result.outcomes[2]));
    return result;
  }

 private:
  Required required() const override { return with_depth(); }

  at::Tensor is_counted(const at::Tensor& depth) const {
    return (depth >= settings_.nearest) & (depth <= settings_.farthest);
  }

  /// Adds the samples' patches to the fit. The target of a patch is the mean logarithm of its known depths.
  void learn(const std::vector<EvaluationSample>& samples, const TowerFeatures& features, const Embedder& embedder, RidgeFit& fit) const {
    const std::vector<at::Tensor> tokens = patches_of(features, "depth_probe").unbind();
    const config::Size grid = embedder.grid();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const at::Tensor depth = depth_of(samples[i]).unsqueeze(0);
      const at::Tensor known = is_counted(depth);
      const auto means = [&](const at::Tensor& pixels) {
        return at::adaptive_avg_pool2d(pixels, {grid.height, grid.width}).flatten();
      };
      const at::Tensor share = means(known.to(at::kFloat));
      const at::Tensor chosen = share.gt(0).nonzero().squeeze(1);
      const at::Tensor sums = means(at::where(known, depth, 1).log());
      fit.add(tokens[i].index_select(0, chosen), (sums / share).index_select(0, chosen));
    }
  }

  void measure(const std::vector<EvaluationSample>& samples, const TowerFeatures& features, const Embedder& embedder,
               const at::Tensor& map, DepthScores& scores) const {
    const config::Size grid = embedder.grid();
    const std::int64_t width = map.size(0) - 1;
    const at::Tensor logs = (patches_of(features, "depth_probe").to(at::kDouble).matmul(map.slice(0, 0, width)) + map[width])
                                .view({-1, 1, grid.height, grid.width});
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const at::Tensor truth = depth_of(samples[i]).to(at::kDouble), known = is_counted(truth);
      if (!known.any().item<bool>()) {
        scores.add_none();
        continue;
      }
      const auto row = static_cast<std::int64_t>(i);
      const at::Tensor predicted = at::upsample_bilinear2d(logs.slice(0, row, row + 1), truth.sizes(), /*align_corners=*/false)
                                       .view(truth.sizes())
                                       .exp()
                                       .clamp(settings_.nearest, settings_.farthest);
      scores.add(predicted.masked_select(known), truth.masked_select(known));
    }
  }
};

}  // namespace

void add_depth_probe(TaskRegistry& list) {
  add_task<DepthProbeTask>(
      list, "depth_probe", "depth by a linear map of frozen patch features (DINOv2)",
      "A linear map of the image encoder's patches, fitted on the logarithm of the training data's depths, predicts depths. "
      "rms_error: the root of the mean squared error in meters. relative_error: the mean of |predicted - true| / true. "
      "delta1_accuracy: the share of pixels where the greater of the two is less than 1.25 times the other. Each is computed over an "
      "image's known pixels and then averaged over images.");
}

}  // namespace tessera
