#include "src/optim/adamw.h"
#include "src/optim/lamb.h"
#include "src/optim/lion.h"
#include "src/optim/muon.h"
#include "src/optim/sgd.h"
#include <tessera/optim/optimizer.h>

namespace tessera {

OptimizerRegistry& optimizers() {
  static OptimizerRegistry registry = [] {
    OptimizerRegistry list("optimizer");
    using Parameters = std::vector<NamedParameter>;
    list.add<AdamWSettings>("adamw", "AdamW (fused operator); OpenCLIP's defaults for ViTs",
                            [](const AdamWSettings& s, const Parameters& p) { return std::make_shared<AdamW>(p, s); });
    list.add<LambSettings>("lamb", "LAMB, as in NVIDIA's FusedLAMB",
                           [](const LambSettings& s, const Parameters& p) { return std::make_shared<Lamb>(p, s); });
    list.add<LionSettings>("lion", "Lion: the sign of a moment, with one moment instead of two",
                           [](const LionSettings& s, const Parameters& p) { return std::make_shared<Lion>(p, s); });
    list.add<MuonSettings>("muon", "Muon for matrices between embeddings and heads, as torch.optim.Muon; AdamW for all other parameters",
                           [](const MuonSettings& s, const Parameters& p) { return std::make_shared<Muon>(p, s); });
    list.add<SgdSettings>("sgd", "SGD with momentum (fused operator)",
                          [](const SgdSettings& s, const Parameters& p) { return std::make_shared<Sgd>(p, s); });
    return list;
  }();
  return registry;
}

}  // namespace tessera
