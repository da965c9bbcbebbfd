#pragma once

#include <map>
#include <string>
#include <vector>

#include <tessera/objectives/contrastive_objective.h>

namespace tessera {

struct PyramidClipSettings {
  double label_smoothing = 0.2;
  double cross_global_weight = 1.0 / 3;
  double cross_local_weight = 1.0 / 3;
  std::vector<std::string> peer_pairs = {"GS", "LT"};
  std::vector<std::string> cross_global_pairs = {"GA", "RS"};
  std::vector<std::string> cross_local_pairs = {"LA", "RT"};
  bool mask_duplicates = false;
  config::SamplesAtATime chunk;
  bool local_loss = true;
};

void fields(auto& v, PyramidClipSettings& s) {
  v("label_smoothing", s.label_smoothing, "share of each pair's target that is spread evenly over its negatives",
    config::in_half_open(0.0, 1.0));
  v("cross_global_weight", s.cross_global_weight, "lambda, the weight of the pairs in cross_global_pairs",
    config::in_range(0.0, 1.0));
  v("cross_local_weight", s.cross_local_weight,
    "mu, the weight of the pairs in cross_local_pairs; the pairs in peer_pairs have weight 1 - lambda - mu", config::in_range(0.0, 1.0));
  v("peer_pairs", s.peer_pairs,
    "pairs of views of one semantic level, each with an image view's letter (G: global, L: local, R: roi, regions) and a text "
    "view's letter (S: summary, T: caption, A: objects, the names of detected objects). A sample that lacks one of the two views is "
    "left out of that pair");
  v("cross_global_pairs", s.cross_global_pairs, "pairs across levels with a global view, written like peer_pairs");
  v("cross_local_pairs", s.cross_local_pairs, "pairs across levels with a local view, written like peer_pairs");
  v("mask_duplicates", s.mask_duplicates, "as in clip");
  v("chunk", s.chunk, "as in clip");
  v("local_loss", s.local_loss, "as in clip");
}

std::optional<config::Problem> validate(const PyramidClipSettings& settings);

/// The loss of PyramidCLIP (Gao et al. 2022, section 3): InfoNCE (eq. 1 and 3) with softened targets (eq. 2) on pairs of an image view and
/// a text view. The pairs form three groups. A group's loss is the mean over its pairs, or 0 if it has no pair; the total is the weighted
/// sum of the groups' losses (eq. 4). The loss of a pair (x, y) is computed over the samples that have both views; if there are fewer than
/// two such samples, it is 0. Terms: `loss_peer`, `loss_cross_global`, `loss_cross_local`, and one per pair: `loss_gs`, `loss_lt`, ...
class PyramidClip : public ContrastiveObjective {
 public:
  PyramidClip(const PyramidClipSettings& settings, const ObjectiveContext& context);
  Losses forward(const Features& features, const StepContext& context) override;
  Needs needs() const override;

 private:
  at::Tensor pair_loss(const ContrastSettings& pair, const Features& features, const ProcessGroup& group) const;

  PyramidClipSettings settings_;
  std::map<std::string, ContrastSettings> pairs_;  // settings of the pairs of all groups; a key is the two letters of a pair, such as GS
};

}  // namespace tessera
