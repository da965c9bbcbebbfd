#include "src/data/loading/evaluation_reader.h"
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
  return {[](const Sample& sample) { return !sample.captions.empty() && !sample.negatives.empty(); }, "no_negatives",
          "hard negatives"};
}

}  // namespace tessera
