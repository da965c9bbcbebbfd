#include <map>

#include <ATen/ATen.h>

#include "src/data/sources/one_per_image.h"
#include "src/evaluation/tasks/negative_pairs.h"

namespace tessera {

NegativePairs::NegativePairs(const std::vector<EvaluationSample>& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t own = std::ssize(texts);
    texts.push_back(samples[i].sample.captions.front());
    for (const HardNegative& wrong : samples[i].sample.negatives) {
      image.push_back(static_cast<std::int64_t>(i));
      positive.push_back(own);
      negative.push_back(std::ssize(texts));
      texts.push_back(wrong.caption);
      kinds.push_back(wrong.kind);
    }
  }
}

Required with_negatives() {
  return {[](const Sample& sample) { return !sample.captions.empty() && !sample.negatives.empty(); }, "no_negatives", "hard negatives"};
}

at::Tensor run_over_pairs(Pass pass, TaskResult& result, const PairsBody& body) {
  pass.reads_pixels = false;
  const std::vector<std::uint64_t> ids = pass.source->image_ids();
  std::map<std::pair<std::uint64_t, std::int64_t>, std::int64_t> numbers;  // key: the image's id or, if it has none, the sample
  std::vector<std::int64_t> image;
  const auto number_of = [&](const EvaluationSample& sample) {
    const std::uint64_t id = ids.empty() ? 0 : ids.at(static_cast<std::size_t>(sample.index));
    return numbers.emplace(std::pair(id, id == 0 ? sample.index : 0), std::ssize(numbers)).first->second;
  };
  pass.run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
    const NegativePairs pairs(samples);
    for (const std::int64_t row : pairs.image) image.push_back(number_of(samples[static_cast<std::size_t>(row)]));
    result.texts += std::ssize(pairs.texts);
    body(pairs, features, embed_texts(pass.embedder, pairs.texts));
  });
  result.samples = std::ssize(numbers);
  return at::tensor(image, at::kLong);
}

}  // namespace tessera
