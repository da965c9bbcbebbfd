#pragma once

#include <string>
#include <vector>

#include <tessera/optim/optimizer.h>

namespace tessera {

/// Parameters that learn faster, slower or later than the others.
struct ParameterGroup {
  std::vector<std::string> match;
  double lr_scale = 1.0;
  std::int64_t frozen_steps = 0;
};

template <class Visitor>
void fields(Visitor& v, ParameterGroup& s) {
  v("match", s.match, "image, text, or patterns of names (visual.attnpool.*)");
  v("lr_scale", s.lr_scale, "multiple of the schedule's learning rate", config::at_least(0));
  v("frozen_steps", s.frozen_steps,
    "number of updates at the start of the run that leave them unchanged (DINO's last layer)", config::at_least(0));
}

struct LayerDecay {
  double image = 1.0;
  double text = 1.0;
};

template <class Visitor>
void fields(Visitor& v, LayerDecay& s) {
  v("image", s.image, "learning rate of each block of the image tower, as a multiple of the next block's; 1: equal rates",
    config::in_range(0, 1));
  v("text", s.text, "the same for the text tower", config::in_range(0, 1));
}

/// Which parameters are trained, and how fast.
struct ParameterSettings {
  std::vector<std::string> frozen;
  std::vector<ParameterGroup> groups;
  LayerDecay layer_decay;
};

template <class Visitor>
void fields(Visitor& v, ParameterSettings& s) {
  v("frozen", s.frozen,
    "parameters that are not trained: image or text (a whole tower; [image] is LiT), or patterns of names (transformer.resblocks.0.*)");
  v("groups", s.groups,
    "parameters with their own learning rates: [{match: [visual.attnpool.*], lr_scale: 10}]; for a parameter in "
    "several groups, the factors multiply and the greatest frozen_steps applies");
  v("layer_decay", s.layer_decay, "smaller learning rates towards the input (BEiT's, as timm's layer_decay)");
}

/// Whether the parameter with this name in checkpoints belongs to the objective, not to a tower.
bool of_objective(const std::string& name);

/// Whether a pattern matches a parameter's name in checkpoints. The pattern "image" matches the image tower (visual.*), "text" matches the
/// text tower, and in any other pattern * matches any characters.
bool matches(const std::string& pattern, const std::string& name);

/// Removes the frozen parameters from the list, turns their requires_grad off, and sets lr_scale and frozen_steps of the others. With layer
/// decay d, in a tower of n blocks, embeddings get the factor d^(n+1), block i (counted from 0) gets d^(n-i), and everything after the
/// blocks gets 1 (Bao et al. 2022, BEiT; a ResNet's stages count as blocks). Throws UserError if a pattern matches nothing (the message
/// suggests the nearest name), if a group has no patterns, or if nothing is left to train.
std::vector<NamedParameter> apply_rules(std::vector<NamedParameter> parameters, const ParameterSettings& settings);

}  // namespace tessera
