#pragma once

#include <vector>

#include <tessera/models/adaptation.h>
#include <tessera/optim/parameter_rules.h>

namespace tessera {

/// apply_rules(), and besides takes the own weights of adapted encoders out of the list (and their requires_grad away): what
/// is left of such an encoder are its adapters and what `trained` names. Read-out, projection and objective are as the rules
/// say. Throws UserError as apply_rules(), where parameters.frozen freezes an adapter or what `trained` names, and for a
/// pattern of `trained` that matches nothing of the encoder.
std::vector<NamedParameter> apply_rules_and_adapt(std::vector<NamedParameter> parameters, const DualEncoder& model,
                                                  const ParameterSettings& rules, const AdaptSettings& settings);

}  // namespace tessera
