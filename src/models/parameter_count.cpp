#include "src/models/parameter_count.h"

#include <set>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/models/adaptation.h>

namespace tessera {

ParameterCount count_parameters(const DualEncoder& model, const torch::nn::Module* objective) {
  std::set<const void*> seen;
  const auto count = [&](const torch::nn::Module& module) {
    std::int64_t sum = 0;
    for (const at::Tensor& parameter : module.parameters())
      if (seen.insert(parameter.unsafeGetTensorImpl()).second) sum += parameter.numel();
    return sum;
  };
  ParameterCount out;
  for (const auto& item : model.named_parameters())
    if (is_adapter(item.key())) out.adapters += item.value().numel();
  if (model.has_text_tower()) out.text = count(model.text_tower());
  out.image = count(model.image_tower());
  if (objective != nullptr) out.objective = count(*objective);
  return out;
}

std::string describe(const ParameterCount& count) {
  std::string text = concat(with_thousands(count.model()), ": image tower ", with_thousands(count.image));
  if (count.text > 0) text += ", text tower " + with_thousands(count.text);
  if (count.objective > 0) text += concat("; ", with_thousands(count.objective), " more of the objective");
  if (count.adapters > 0) text += concat("; ", with_thousands(count.adapters), " in adapters");
  if (count.trained && *count.trained < count.model() + count.objective)
    text += concat("; ", with_thousands(*count.trained), " are trained");
  return text;
}

}  // namespace tessera
