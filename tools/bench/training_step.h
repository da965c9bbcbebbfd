#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "src/distributed/gradient_reducer.h"
#include "src/optim/grad_norm_groups.h"
#include "src/training/run/teacher.h"
#include "src/training/step/step_graph.h"
#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>

namespace tessera::bench {

struct TrainingStepSettings {
  std::int64_t batch_size = 32;
  at::Device device{at::kCPU};
  at::ScalarType dtype = at::kFloat;      // with bfloat16, the towers run under autocast
  std::string caption_lengths = "full";   // the argument of caption_lengths()
  std::string weights;                    // a safetensors file with OpenCLIP's names; empty: random weights
  /// A safetensors file with `image` [B, 3, H, W] (uint8 or normalized), `text` [B, L], and `lengths` [B], the number of real tokens of
  /// each text. If the name is empty, images and texts are random.
  std::string batch;
  /// If "gloo" or "nccl", gradients are reduced through this backend, although there is only one rank. If "auto", gradients are not
  /// reduced.
  std::string backend = "auto";
};

/// Returns the numbers of tokens of `count` captions. No number exceeds `most`. If `text` is "full", all numbers are `most`; if "coco",
/// they follow the distribution of COCO's captions with CLIP's tokenizer; if "12", all are 12; if "9:20", they are drawn uniformly from 9
/// to 20. The result is deterministic. Throws UserError naming --caption-lengths.
std::vector<std::int64_t> caption_lengths(const std::string& text, std::int64_t count, std::int64_t most);

/// Returns a function that embeds random images with the image tower of a configuration, without gradients and in evaluation mode.
/// The text tower is also built, but there is no optimizer. Only the batch size, device and dtype of the settings are used.
std::function<void()> image_forward(const std::string& configuration, const TrainingStepSettings& settings);

/// A training step on a batch that is already in memory: towers, loss, backward pass, clipping and update, according to the
/// configuration's model, objective, optimizer and training.clip_norm.
class TrainingStep {
 public:
  /// `configuration` is a recipe's name or a file, as in trainer --config. Throws UserError for an invalid configuration, and for weights
  /// or a batch that do not fit the model.
  TrainingStep(const std::string& configuration, const TrainingStepSettings& settings);

  /// Called at the end of each phase with its name: "image tower", "text tower", "teacher", "objective", "backward", "clipping", "update".
  using OnPhase = std::function<void(const char* phase)>;
  struct How {
    bool views_joined = true;  // whether views with the same shape are joined into a larger batch, as in the trainer
    bool reduce = true;        // whether gradients are reduced through the backend
    OnPhase on_phase;
  };
  /// Runs a step. Returns the loss, a scalar on the device.
  at::Tensor run(const How& how);
  at::Tensor run() { return run(How{}); }
  /// Runs a step whose forward and backward pass are a CUDA graph (training.cuda_graph); the first calls record the graph.
  at::Tensor run_recorded();

  bool has_several_views() const { return needs_.images.size() > 1 || needs_.texts.size() > 1; }
  /// Whether run_recorded() can be called. This requires a GPU, an objective that does not depend on the step, no backend and no teacher.
  bool can_be_recorded() const;
  /// Whether gradients are averaged over ranks.
  bool reduces() const { return !group_.alone(); }
  std::int64_t parameters() const;

 private:
  std::map<std::string, TowerFeatures> encode(const Batch& batch, bool images, bool views_joined);
  Losses forward(const Batch& batch, const How& how);
  void refresh_copies();
  void update(const How& how);
  Batch make_synthetic_batch(const config::Node& tree) const;
  void take_batch(const std::string& path);

  TrainingStepSettings settings_;
  std::shared_ptr<DualEncoder> model_;
  std::shared_ptr<Objective> objective_;
  std::shared_ptr<Optimizer> optimizer_;
  GradNormGroups norm_groups_;
  std::optional<double> clip_norm_;
  Needs needs_;
  Batch batch_;
  ProcessGroup group_;
  std::unique_ptr<Teacher> teacher_;  // null if the objective has none
  StepContext context_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<StepGraph> graph_;  // null until the first recording
};

}  // namespace tessera::bench
