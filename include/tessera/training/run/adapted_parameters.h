#pragma once

#include <vector>

#include <tessera/models/adaptation.h>
#include <tessera/optim/parameter_rules.h>

namespace tessera {

/// Calls apply_rules(), then also removes the original weights of adapted encoders from the list and freezes them. Of such an
/// encoder only its adapters and the parameters named in `trained` stay. Read-out, projection and objective follow the rules.
/// Throws UserError like apply_rules(), if parameters.frozen freezes an adapter or a parameter in `trained`, and if a pattern of
/// `trained` matches no parameter of the encoder.
std::vector<NamedParameter> apply_rules_and_adapt(std::vector<NamedParameter> parameters, const DualEncoder& model,
                                                  const ParameterSettings& rules, const AdaptSettings& settings);

}  // namespace tessera
