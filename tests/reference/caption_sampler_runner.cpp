// Compares the sampling of sentences with the reference cases in golden/captions.
#include <algorithm>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "tests/reference/all_runners.h"
#include <tessera/config/registry.h>
#include <tessera/data/loading/caption_sampler.h>

namespace tessera::probe {
namespace {

std::vector<TextField> texts_of_case(const nlohmann::json& fields) {
  std::vector<TextField> out;
  for (const auto& [name, value] : fields.items()) {
    TextField field;
    field.name = name;
    field.is_list = value.is_array();
    field.texts = field.is_list ? value.get<std::vector<std::string>>() : std::vector{value.get<std::string>()};
    out.push_back(std::move(field));
  }
  return out;
}

Outputs run_caption_sampler(Run& run) {
  auto settings = config::read<CaptionSamplerSettings>(run.settings());
  // JSON objects do not keep the order of their fields. So a case must list its fields, in order, in the settings. Fields that are not
  // listed are not used.
  if (!settings.fields) settings.fields.emplace();
  const nlohmann::json& inputs = run.json_inputs();
  const auto draws = inputs.value("draws", std::vector<double>());
  std::size_t used = 0;
  const auto next_draw = [&] {
    TORCH_CHECK(used < draws.size(), "the case has ", draws.size(), " draws, but the sampler needs one more");
    return draws[used++];
  };
  const CaptionSampler sampler(settings);
  const std::vector<std::string> captions =
      sampler.sample(texts_of_case(inputs.value("fields", nlohmann::json::object())), next_draw);
  at::Tensor present = at::empty({sampler.count()}, at::kBool);
  std::ranges::transform(captions, present.data_ptr<bool>(), [](const std::string& text) { return !text.empty(); });
  return {{"captions", tensor_of_texts(captions)},
          {"present", present},
          {"draws_used", at::scalar_tensor(static_cast<std::int64_t>(used), at::kLong)}};
}

}  // namespace

void add_caption_sampler_runner(Runners& runners) {
  runners.add("caption_sampler", run_caption_sampler);
}

}  // namespace tessera::probe
