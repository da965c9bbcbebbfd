#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/models/dual_encoder.h>
#include <tessera/models/lora.h>

namespace tessera {

/// The adapters of one tower's encoder.
struct TowerAdaptation {
  std::optional<LoraSettings> lora;
};

template <class Visitor>
void fields(Visitor& v, TowerAdaptation& s) {
  v("lora", s.lora, "low-rank adapters: {rank: 8}");
}

/// Rejects settings that name no kind of adapter.
std::optional<config::Problem> validate(const TowerAdaptation& settings);

/// The adapters of each tower, which are trained instead of the encoder's own weights.
struct AdaptSettings {
  std::optional<TowerAdaptation> image, text;
};

template <class Visitor>
void fields(Visitor& v, AdaptSettings& s) {
  constexpr const char* kHelp =
      "adds low-rank adapters to the blocks of this tower's encoder and freezes its own weights: {lora: {rank: 8}}, with the "
      "settings of LoRA below; null: none";
  v("image", s.image, kHelp);
  v("text", s.text, kHelp);
}

/// Adds the adapters that the settings name to the encoders. Their parameters `lora_*` are next to the weights that they adapt
/// (visual.transformer.resblocks.0.attn.lora_query_a). The matrices A are drawn from the seed; the model's outputs do
/// not change. If there are any adapters, LibTorch's default generator is reseeded. Throws UserError if a tower is
/// missing or has no transformer blocks, or if rank, layers or blocks do not fit the tower.
void adapt(DualEncoder& model, const AdaptSettings& settings, std::uint64_t seed);

/// Whether a name in a model's state belongs to an adapter.
bool is_adapter(const std::string& name);

/// An adapter's update of a weight: adds scale * b a to `rows` rows of `weight`, starting at row `first`. `weight`, `a`
/// and `b` are names in the model's state.
struct WeightUpdate {
  std::string weight;
  std::int64_t first = 0, rows = 0;
  std::string a, b;
  double scale = 1;
};

/// Returns the updates of all adapters of a model.
std::vector<WeightUpdate> weight_updates(const DualEncoder& model);

/// Returns weights for the same model without adapters: applies the updates (in float64 on the CPU, so that every
/// machine gets the same result) and removes the adapters. Other tensors are shared.
std::map<std::string, at::Tensor> merged(const std::map<std::string, at::Tensor>& weights,
                                         const std::vector<WeightUpdate>& updates);
/// Returns what merged() loses: the original values of the updated weights, and the adapters.
std::map<std::string, at::Tensor> unmerged(const std::map<std::string, at::Tensor>& weights,
                                           const std::vector<WeightUpdate>& updates);

/// While an object exists, the adapters' updates are added to the model's weights, and the adapters themselves are switched off.
class MergedAdapters {
 public:
  explicit MergedAdapters(DualEncoder& model);
  ~MergedAdapters();
  MergedAdapters(const MergedAdapters&) = delete;
  MergedAdapters& operator=(const MergedAdapters&) = delete;

 private:
  void set_merged(bool merged);

  DualEncoder& model_;
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // pairs of a weight and its previous values
};

}  // namespace tessera
