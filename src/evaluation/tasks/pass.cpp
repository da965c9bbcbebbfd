#include "src/data/loading/evaluation_reader.h"
#include "src/data/loading/reported_samples.h"
#include "src/evaluation/tasks/pass.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/image/patches.h"
#include "src/evaluation/metrics/sparse.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// The number of text embeddings that are held at full width before they are reduced to class embeddings or stored compactly. 512 embeddings
// with one dimension per token of a vocabulary take 60 MB.
constexpr std::size_t kTextsAtATime = 512;

/// Throws UserError if a row of embeddings is not finite. For the message, name_of(i) describes what row i embeds.
void check_finite(const at::Tensor& rows, const std::function<std::string(std::size_t)>& name_of) {
  const at::Tensor broken = rows.isfinite().all(1).logical_not().nonzero();
  if (broken.numel() == 0) return;
  user_error("the model's embedding of ", name_of(static_cast<std::size_t>(broken[0][0].item<std::int64_t>())),
             " is not finite: the weights are broken or the training diverged; take an earlier checkpoint");
}

std::string filled(std::string form, const std::string& name) {
  for (std::size_t at = form.find("{}"); at != std::string::npos; at = form.find("{}", at + name.size()))
    form.replace(at, 2, name);
  return form;
}

/// Warns if two classes have the same name.
void warn_of_twice(const std::vector<std::string>& names, const std::string& task) {
  std::map<std::string, std::size_t> seen;
  std::vector<std::string> twice;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const auto [first, is_new] = seen.emplace(names[i], i); !is_new && twice.size() < 5)
      twice.push_back(concat(printable(names[i], 60), " (", first->second, " and ", i, ")"));
  static ReportedSamples reported;  // tasks ask for their classes several times
  const std::string text =
      concat(task, ": classes have the same name: ", join_names(twice), "; the model cannot tell their images apart");
  if (!twice.empty() && reported.tell("classes", text) != ReportedSamples::Tell::no) log::warning(text);
}

}  // namespace

std::shared_ptr<const Source> open_source(const std::optional<config::ModuleSettings>& choice,
                                          const std::shared_ptr<const Source>& fallback, const std::string& key) {
  return one_sample_per_image(open_samples(choice, fallback, key));
}

std::shared_ptr<const Source> open_source(const TaskData& data, const std::shared_ptr<const Source>& fallback,
                                          const std::string& key) {
  const std::shared_ptr<const Source> source = open_samples(data.source, fallback, key);
  if (data.group_equal_images && std::holds_alternative<const StreamSource*>(source->kind()))
    user_error(key.substr(0, key.rfind('.')), ".group_equal_images: ", source->describe(),
               ": is a stream, which can only be read in order, but images are compared with all others: leave the "
               "setting out, or use local, uncompressed tar files");
  return one_sample_per_image(source, data.group_equal_images);
}

std::shared_ptr<const Source> open_samples(const std::optional<config::ModuleSettings>& choice,
                                           const std::shared_ptr<const Source>& fallback, const std::string& key) {
  if (choice) return sources().make(*choice, key);
  if (fallback == nullptr) {
    user_error(
        key, " is not set, and there is no data of a run to fall back on: set it, for example to {name: shapes, split: test}");
  }
  return fallback;
}

std::int64_t ImageNumbers::of(const EvaluationSample& sample) {
  const std::uint64_t id = ids_.empty() ? 0 : ids_.at(static_cast<std::size_t>(sample.index));
  return known_.emplace(std::pair(id, id == 0 ? sample.index : 0), count()).first->second;
}

std::vector<std::string> class_names_for(const TextList& classes, const Source& source, const std::string& task) {
  const std::vector<std::string> names = classes.items.empty() ? source.class_names() : classes.items;
  if (names.empty())
    throw TaskMisfit(concat(source.describe(), " has no class names: set ", task,
                            ".classes to a list or a file, or `classes` of the data to a file with one name per line"));
  warn_of_twice(names, task);
  return names;
}

Required labeled() {
  return {[](const Sample& sample) { return sample.label >= 0; }, "no_label", "a class label", "label"};
}

Required captioned() {
  return {[](const Sample& sample) { return !sample.captions.empty(); }, "no_caption", "a caption", "caption"};
}

std::string lacking(const Source& source, const Required& required) {
  const std::string where = required.field.empty() ? "" : source.describe_fields({required.field});
  return concat("has ", required.name, where.empty() ? "" : ". ", where);
}

std::int64_t Pass::total() const {
  return max_samples < 0 ? source->size() : std::min(max_samples, source->size());
}

EmbeddingTable* Pass::kept() const {
  FeatureStore* const store = embedder.feature_store();
  const bool embeddings_alone =
      images == EvaluationImages::prepared && needs == ViewNeeds{} && embedder.compares_by_cosine();
  return store != nullptr && embeddings_alone ? &store->images(*source) : nullptr;
}

TowerFeatures Pass::encode_images(const std::vector<EvaluationSample>& samples, EmbeddingTable* kept) const {
  std::vector<std::uint64_t> of, new_ones;
  std::vector<const EvaluationSample*> unknown;
  for (const EvaluationSample& sample : samples) {
    of.push_back(sample.image);
    if (kept != nullptr && kept->contains(sample.image)) continue;
    new_ones.push_back(sample.image);
    unknown.push_back(&sample);
  }
  if (kept == nullptr) return computed(unknown);
  if (!unknown.empty()) kept->add(new_ones, computed(unknown).global);
  TowerFeatures features;
  features.global = kept->rows(of);
  return features;
}

TowerFeatures Pass::computed(const std::vector<const EvaluationSample*>& samples) const {
  std::vector<at::Tensor> pixels;
  for (const EvaluationSample* sample : samples) pixels.push_back(sample->pixels);
  TowerFeatures features = embedder.encode_images(image_batch(pixels, embedder.preprocessing()), needs);
  check_finite(features.global, [&](std::size_t row) { return "the image " + samples[row]->sample.key; });
  return features;
}

void Pass::warn_of_equal_images(std::int64_t equal, std::int64_t used, const std::string& first) const {
  if (context.reported && context.reported->tell("equal images", source->describe()) == ReportedSamples::Tell::no) return;
  log::warning(source->describe(), ": ", with_thousands(equal), " of ", with_thousands(used),
               " images have the same bytes as an earlier image (the first: ", printable(first),
               ") and count as images of their own: the task's group_equal_images: true makes them one image with all "
               "their captions");
}

void Pass::run(TaskResult& result, const BatchBody& body) const {
  result.data = source->describe();
  EmbeddingTable* const table = kept();
  IsKnownImage is_known;
  if (table != nullptr && !reads_pixels)
    is_known = [table](std::uint64_t image) { return table->contains(image); };
  EvaluationReader reader(source, embedder.preprocessing(), context.batch_size, context.threads, max_samples, images,
                          is_known, context.reported);
  const std::int64_t before = table != nullptr ? table->size() : 0;
  std::int64_t read = 0, used = 0, equal = 0;
  std::unordered_set<std::uint64_t> known;
  std::string first_equal;
  for (;;) {
    std::vector<EvaluationSample> samples = reader.next();
    if (samples.empty()) break;
    read += std::ssize(samples);
    if (required.in) {
      const auto lacking = std::erase_if(samples, [&](const EvaluationSample& sample) { return !required.in(sample.sample); });
      if (lacking > 0) result.skipped[required.reason] += static_cast<std::int64_t>(lacking);
    }
    if (!samples.empty()) {
      used += std::ssize(samples);
      for (const EvaluationSample& sample : samples) {
        result.sample_mark = fingerprint(sample.sample.key, result.sample_mark);
        if (counts_equal_images && !known.insert(sample.image).second && equal++ == 0) first_equal = sample.sample.key;
      }
      body(samples, images == EvaluationImages::prepared ? encode_images(samples, table) : TowerFeatures());
    }
    if (context.progress) context.progress(read, total());
  }
  for (const auto& [reason, count] : reader.statistics().skipped) result.skipped[reason] += count;
  result.samples += used;
  result.equal_images += equal;
  if (const std::int64_t bad = source->bad_rows(); bad > 0)
    result.notes.push_back(concat(with_thousands(bad), bad == 1 ? " row is" : " rows are",
                                  " bad and left out; the images have other rows"));
  if (equal > 0) warn_of_equal_images(equal, used, first_equal);
  if (before > 0)
    log::info(source->describe(), ": ", with_thousands(used - std::min(used, table->size() - before)), " of ",
              with_thousands(used), " image embeddings came from the cache");
  if (read == 0) user_error(source->describe(), ": none of its ", with_thousands(total()), " samples could be read");
  if (used == 0) user_error(source->describe(), ": no sample ", lacking(*source, required));
}

TowerFeatures embed_texts(const Embedder& embedder, const std::vector<std::string>& texts, const ViewNeeds& needs) {
  const TowerFeatures features = embedder.encode_texts(texts, needs);
  check_finite(features.global, [&](std::size_t row) { return concat("the text \"", texts[row], "\""); });
  return features;
}

TowerFeatures embed_compactly(const Embedder& embedder, const std::vector<std::string>& texts) {
  std::vector<TowerFeatures> chunks;
  at::Tensor dense;  // allocated for all rows at once, because joining chunks would take twice the memory
  std::int64_t row = 0;
  for (auto begin = texts.begin(); row == 0 || begin != texts.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(kTextsAtATime, texts.end() - begin);
    const TowerFeatures chunk = embedder.compact(embed_texts(embedder, {begin, end}));
    if (chunk.global.is_sparse() || !embedder.compares_by_cosine()) {
      chunks.push_back(chunk);
    } else {
      if (!dense.defined()) dense = at::empty({std::ssize(texts), chunk.global.size(1)}, chunk.global.options());
      dense.narrow(0, row, end - begin).copy_(chunk.global);
    }
    row += std::max<std::int64_t>(end - begin, 1);
    begin = end;
  }
  if (!dense.defined()) return joined(chunks);
  TowerFeatures out;
  out.global = dense;
  return out;
}

TowerFeatures embed_classes(const Embedder& embedder, const std::vector<std::string>& names, const TextList& templates,
                            const ViewNeeds& needs) {
  const std::size_t forms = templates.items.size();
  std::vector<TowerFeatures> classes;
  std::vector<std::string> prompts;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (const std::string& form : templates.items) prompts.push_back(filled(form, names[i]));
    if (i + 1 < names.size() && prompts.size() + forms <= kTextsAtATime) continue;
    classes.push_back(
        embedder.compact(embedder.classes(embed_texts(embedder, prompts, needs), static_cast<std::int64_t>(forms))));
    prompts.clear();
  }
  return joined(classes);
}

TowerFeatures select_rows(const TowerFeatures& features, const std::vector<std::int64_t>& rows) {
  const at::Tensor chosen = at::tensor(rows, at::kLong);
  return map_tensors(features, [&](const at::Tensor& tensor) {
    const at::Tensor some = tensor.index_select(0, chosen);
    return some.is_sparse() ? some.coalesce() : some;
  });
}

TowerFeatures slice(const TowerFeatures& features, metrics::RowRange rows) {
  return map_tensors(features, [&](const at::Tensor& tensor) {
    return metrics::narrow_rows(tensor, rows.begin, rows.end - rows.begin);
  });
}

}  // namespace tessera
