#pragma once

#include <optional>

#include "src/objectives/pairs/features.h"
#include <tessera/objectives/contrastive_objective.h>
#include <tessera/ops/numeric.h>

namespace tessera {

/// An objective on the pairs of one image view and one text view. `Settings` has a member `pairs`: PairSettings or ContrastSettings.
template <class Settings>
class PairObjective : public ContrastiveObjective {
 public:
  Losses forward(const Features& features, const StepContext& context) override {
    const NoAutocast no_autocast;
    return loss(pair_features(features, name_, ContrastSettings{settings_.pairs}, wants_, context.group), features, context);
  }

  Needs needs() const override { return settings_.pairs.needs({.tokens = wants_.image_tokens}, {.tokens = wants_.text_tokens}); }

 protected:
  /// `name` is the objective's name in messages. See ContrastiveObjective for the other arguments.
  PairObjective(const char* name, const PairWants& wants, const Settings& settings, const ObjectiveContext& context,
                std::optional<double> initial_logit_scale = {})
      : ContrastiveObjective(context, initial_logit_scale), settings_(settings), name_(name), wants_(wants) {}

  /// Returns the loss of the pairs, whose features are those that the objective wants.
  virtual Losses loss(const PairFeatures& pairs, const Features& features, const StepContext& context) = 0;

  const Settings settings_;

 private:
  const char* name_;
  PairWants wants_;
};

}  // namespace tessera
