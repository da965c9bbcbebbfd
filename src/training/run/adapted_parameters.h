#pragma once

#include <vector>

#include <tessera/models/adaptation.h>
#include <tessera/optim/parameter_rules.h>

namespace tessera {

/// Calls apply_rules(). In an encoder with adapters, it then also freezes all parameters except the adapters and those that match the
/// adapters' setting `trained`, and removes the frozen parameters from the list. For read-out, projection and objective, the rules alone
/// decide. Throws UserError like apply_rules(), and also if parameters.frozen freezes an adapter or a parameter that matches `trained`, or
/// if a pattern of `trained` matches no parameter of the encoder.
std::vector<NamedParameter> apply_rules_and_adapt(std::vector<NamedParameter> parameters, const DualEncoder& model,
                                                  const ParameterSettings& rules, const AdaptSettings& settings);

}  // namespace tessera
