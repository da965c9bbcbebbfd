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

#include <tessera/distributed/gradient_reducer.h>
#include <tessera/models/dual_encoder.h>
#include <tessera/objectives/objective.h>
#include <tessera/optim/grad_norm_groups.h>
#include <tessera/training/run/teacher.h>
#include <tessera/training/step/step_graph.h>

namespace tessera::bench {

struct TrainingStepSettings {
  std::int64_t batch_size = 32;
  at::Device device{at::kCPU};
  at::ScalarType dtype = at::kFloat;      // bfloat16: autocast in the towers
  std::string caption_lengths = "full";   // as caption_lengths() takes them
  std::string weights;                    // a safetensors file under OpenCLIP's names; empty: random ones
  /// A safetensors file with `image` [B, 3, H, W], uint8 or normalized, `text` [B, L], and `lengths` [B], how many ids of
  /// each are real; empty: random pictures and texts.
  std::string batch;
  /// What gradients go through, though there is one rank: "auto" (nothing), "gloo" or "nccl".
  std::string backend = "auto";
};

/// How many tokens each of `count` captions has, at most `most`. text: "full", all of them `most`; "coco", drawn as those
/// of COCO's captions are with CLIP's tokenizer; "12" or "9:20", all alike, or drawn evenly between the two. The same for
/// the same arguments. Throws UserError naming --caption-lengths.
std::vector<std::int64_t> caption_lengths(const std::string& text, std::int64_t count, std::int64_t most);

/// A call that embeds random images with the image tower of a configuration, without gradients and in evaluation mode. The text
/// tower is built, too, but there is no optimizer. Of the settings the batch size, device and dtype count.
std::function<void()> image_forward(const std::string& configuration, const TrainingStepSettings& settings);

/// A step of training on a batch that is there already: towers, loss, backward pass, clipping and update, as a
/// configuration's sections model, objective, optimizer and training.clip_norm have it.
class TrainingStep {
 public:
  /// configuration: of trainer, by name or as a file. Throws UserError for what is no configuration, for weights and batches that do not fit.
  TrainingStep(const std::string& configuration, const TrainingStepSettings& settings);

  /// Called when a phase is through: "image tower", "text tower", "teacher", "objective", "backward", "clipping", "update".
  using OnPhase = std::function<void(const char* phase)>;
  struct How {
    bool views_joined = true;  // views of one shape as one larger batch, as the trainer does; false: one after another
    bool reduce = true;        // gradients go through the backend
    OnPhase on_phase;
  };
  /// Returns the loss, a scalar on the device.
  at::Tensor run(const How& how);
  at::Tensor run() { return run(How{}); }
  /// The same with forward and backward pass as one recording (training.cuda_graph), which the first calls make.
  at::Tensor run_recorded();

  bool has_several_views() const { return needs_.images.size() > 1 || needs_.texts.size() > 1; }
  /// Whether run_recorded() can be called: on a GPU without a backend, an objective that is the same in each step.
  bool can_be_recorded() const;
  /// Whether there is a backend that gradients go through.
  bool reduces() const { return !group_.alone(); }
  std::int64_t parameters() const;

 private:
  std::map<std::string, TowerFeatures> encode(const Batch& batch, bool images, bool views_joined);
  Losses forward(const Batch& batch, const How& how);
  void update(const How& how);
  Batch synthetic_batch_of(const config::Node& tree) const;
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
  std::unique_ptr<Teacher> teacher_;  // null: the objective asks for none
  StepContext context_;
  std::unique_ptr<GradientReducer> reducer_;
  std::unique_ptr<StepGraph> graph_;  // null: nothing is recorded yet
};

}  // namespace tessera::bench
