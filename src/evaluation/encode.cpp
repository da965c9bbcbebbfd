#include "src/evaluation/encode.h"

#include <tessera/base/text.h>
#include <tessera/data/image/transforms.h>

namespace tessera {
namespace {

void check_finite(const at::Tensor& rows, const std::string& what) {
  if (rows.isfinite().all().item<bool>()) return;
  user_error("the model's embedding of ", what,
             " is not finite: the weights are broken or the training diverged; take an "
             "earlier checkpoint");
}

}  // namespace

std::shared_ptr<const Source> open_source(const std::optional<config::ModuleSettings>& choice,
                                          const std::shared_ptr<const Source>& fallback, const std::string& key) {
  if (choice) return sources().make(*choice, key);
  if (fallback == nullptr) {
    user_error(
        key, " is not set, and there is no data of a run to fall back on: set it, say to {name: shapes, split: test}");
  }
  return fallback;
}

std::vector<std::string> class_names_for(const TextList& classes, const Source& source, const std::string& task) {
  const std::vector<std::string> names = classes.items.empty() ? source.class_names() : classes.items;
  if (names.empty()) {
    user_error(task, ": ", source.describe(), " has no class names: set ", task, ".classes to a list or a file");
  }
  return names;
}

void encode_source(DualEncoder& model, const std::shared_ptr<const Source>& source, const EvaluationContext& context,
                   std::int64_t max_samples, bool dense, TaskResult& result, const BatchBody& body) {
  if (result.data.empty()) result.data = source->describe();
  EvaluationReader reader(source, model.settings().preprocessing, context.batch_size, context.threads, max_samples);
  const std::int64_t total = max_samples < 0 ? source->size() : std::min(max_samples, source->size());
  std::int64_t done = 0;
  for (;;) {
    const std::vector<EvaluationSample> samples = reader.next();
    if (samples.empty()) break;
    std::vector<at::Tensor> pixels;
    for (const EvaluationSample& sample : samples) pixels.push_back(sample.pixels);
    const TowerFeatures features = model.encode_image(at::stack(pixels).to(context.device), {.dense = dense});
    check_finite(features.global,
                 concat("the pictures ", samples.front().sample.key, " to ", samples.back().sample.key));
    body(samples, features);
    done += static_cast<std::int64_t>(samples.size());
    if (context.progress) context.progress(done, total);
  }
  const LoaderStatistics statistics = reader.statistics();
  for (const auto& [reason, count] : statistics.skipped) result.skipped[reason] += count;
  result.samples += done;
  if (done == 0) user_error(source->describe(), ": none of its ", with_thousands(total), " samples could be read");
}

at::Tensor encode_texts(DualEncoder& model, const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                        const EvaluationContext& context) {
  constexpr std::size_t kBatch = 256;
  std::vector<at::Tensor> rows;
  for (std::size_t begin = 0; begin < texts.size(); begin += kBatch) {
    const std::vector<std::string> some(
        texts.begin() + static_cast<std::ptrdiff_t>(begin),
        texts.begin() + static_cast<std::ptrdiff_t>(std::min(texts.size(), begin + kBatch)));
    TowerInput batch = tokenizer.encode_batch(some);
    batch.ids = batch.ids.to(context.device);
    batch.mask = batch.mask.to(context.device);
    rows.push_back(model.encode_text(batch).global.to(at::kCPU, at::kFloat));
    check_finite(rows.back(), concat("a text among \"", some.front(), "\" and the ", some.size() - 1, " after it"));
  }
  return rows.empty() ? at::empty({0, model.embed_dim()}) : at::cat(rows);
}

ClassPrompts encode_prompts(DualEncoder& model, const Tokenizer& tokenizer, const std::vector<std::string>& names,
                            const TextList& templates, const EvaluationContext& context) {
  std::vector<std::string> prompts;
  for (const std::string& name : names) {
    for (const std::string& form : templates.items) {
      std::string prompt = form;
      for (std::size_t at = prompt.find("{}"); at != std::string::npos; at = prompt.find("{}", at + name.size())) {
        prompt.replace(at, 2, name);
      }
      prompts.push_back(std::move(prompt));
    }
  }
  const auto forms = static_cast<std::int64_t>(templates.items.size());
  return {encode_texts(model, tokenizer, prompts, context),
          at::arange(static_cast<std::int64_t>(names.size()), at::kLong).repeat_interleave(forms)};
}

LabeledFeatures encode_labeled(DualEncoder& model, const std::shared_ptr<const Source>& source,
                                 const EvaluationContext& context, std::int64_t max_samples, TaskResult& result) {
  LabeledFeatures out;
  std::vector<at::Tensor> rows;
  std::vector<std::int64_t> labels;
  encode_source(model, source, context, max_samples, false, result,
                [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
                  std::vector<std::int64_t> kept;
                  for (std::size_t i = 0; i < samples.size(); ++i) {
                    if (samples[i].sample.label < 0) continue;
                    kept.push_back(static_cast<std::int64_t>(i));
                    labels.push_back(samples[i].sample.label);
                    out.indices.push_back(samples[i].index);
                  }
                  const auto unlabeled = static_cast<std::int64_t>(samples.size() - kept.size());
                  if (unlabeled > 0) result.skipped["no_label"] += unlabeled;
                  result.samples -= unlabeled;
                  rows.push_back(features.global.to(at::kCPU, at::kFloat).index_select(0, at::tensor(kept, at::kLong)));
                });
  if (labels.empty()) user_error(source->describe(), ": no sample has a class label");
  out.features = at::cat(rows);
  out.labels = at::tensor(labels, at::kLong);
  return out;
}

Image to_image(const at::Tensor& pixels) {
  const at::Tensor rows = pixels.to(at::kCPU).permute({1, 2, 0}).contiguous();
  Image image{rows.size(0), rows.size(1), {}};
  const auto* data = rows.const_data_ptr<std::uint8_t>();
  image.pixels.assign(data, data + rows.numel());
  return image;
}

Image model_view(const Source& source, std::int64_t index, const Preprocessing& preprocessing) {
  const Sample sample = indexed(source).get(index);
  return preprocess(sample.image.empty() ? decode_image(sample.encoded) : sample.image, preprocessing);
}

std::vector<std::int64_t> spread(std::int64_t count, std::int64_t wanted) {
  std::vector<std::int64_t> out;
  wanted = std::min(count, wanted);
  for (std::int64_t i = 0; i < wanted; ++i) out.push_back(i * count / wanted);
  return out;
}

}  // namespace tessera
