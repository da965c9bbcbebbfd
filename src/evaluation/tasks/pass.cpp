#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_set>
#include <utility>
#include <variant>

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/image/patches.h"
#include "src/data/loading/reported_samples.h"
#include "src/evaluation/metrics/sparse.h"
#include "src/evaluation/rank_embedder.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/placeholder.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/stream.h>

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
  const std::string place = placeholder_of(form);
  for (std::size_t at = form.find(place); at != std::string::npos; at = form.find(place, at + name.size()))
    form.replace(at, place.size(), name);
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
  const std::string text = concat(task, ": classes have the same name: ", join_names(twice), "; the model cannot tell their images apart");
  if (!twice.empty() && reported.tell("classes", text) != ReportedSamples::Tell::no) log::warning(text);
}

// Usually the first few samples already have what a task needs, but sometimes only one sample in a few hundred has it.
constexpr std::int64_t kFewSamples = 8, kMostSamples = 256;

struct Looks {
  std::int64_t readable = 0, having = 0;
};

/// Returns a function that returns a different sample at each of at most `looks` calls. The returned samples are spread over the first
/// `count` samples of the source. If the source is a stream, its first samples are returned.
std::function<Sample()> some_samples(const Source& source, std::int64_t count, std::int64_t looks) {
  const SourceKind kind = source.kind();
  if (const auto* stream = std::get_if<const StreamSource*>(&kind)) {
    StreamStart start;
    start.shuffle = false;
    return [samples = std::shared_ptr<SampleStream>((*stream)->open(start))] { return samples->next()(); };
  }
  return [&samples = indexed(source), count, looks, next = std::int64_t{0}]() mutable {
    return samples.get(next++ * count / looks);
  };
}

Looks look_at(const Source& source, std::int64_t count, std::int64_t most, const Required& required,
              const std::function<void(const Sample&)>& look) {
  const std::int64_t looks = std::min(count, most);
  const auto next = some_samples(source, count, looks);
  Looks out;
  for (std::int64_t i = 0; i < looks; ++i) {
    try {
      const Sample sample = next();
      ++out.readable;
      if (!required.in(sample)) continue;
      ++out.having;
      if (look) look(sample);
    } catch (const SampleError&) {
      continue;  // the task itself will count this sample as skipped
    }
  }
  return out;
}

std::int64_t looked_through(const Source& source, std::int64_t max_samples) {
  return max_samples < 0 ? source.size() : std::min(max_samples, source.size());
}

/// Returns the end of an error message that begins with "no sample". The end states what is required ("has a class label") and, if the
/// source can tell, where the source looks for the required field.
std::string lacking(const Source& source, const Required& required) {
  const std::string where = required.field.empty() ? "" : source.describe_fields({required.field});
  return concat("has ", required.name, where.empty() ? "" : ". ", where);
}

}  // namespace

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

bool some_sample_has(const Source& source, std::int64_t max_samples, const Required& required,
                     const std::function<void(const Sample&)>& look) {
  const std::int64_t count = looked_through(source, max_samples);
  Looks seen = look_at(source, count, kFewSamples, required, look);
  if (seen.having == 0) seen = look_at(source, count, kMostSamples, required, look);
  return seen.having > 0 || seen.readable == 0;
}

void check_samples(const Source& source, const std::string& setting, std::int64_t max_samples, const Required& required,
                   const std::function<void(const Sample&)>& look) {
  if (some_sample_has(source, max_samples, required, look)) return;
  const std::int64_t count = looked_through(source, max_samples);
  const std::string which = count <= kMostSamples ? "no sample of " + source.describe()
                                                  : concat("none of ", kMostSamples, " samples of ", source.describe());
  throw TaskMisfit(concat(which, " ", lacking(source, required), ": name other data in its `", setting, "`, or leave the task out"));
}

std::int64_t Pass::total() const {
  return max_samples < 0 ? source->size() : std::min(max_samples, source->size());
}

bool Pass::on_all_ranks() const {
  return context.ranks != nullptr && context.ranks->reads_images() && order && images == EvaluationImages::prepared &&
         embedder.preprocessing().resize_mode != "naflex" && std::holds_alternative<const IndexedSource*>(source->kind());
}

std::vector<EvaluationSample> Pass::read_on_all_ranks(std::vector<EvaluationSample> samples, const std::vector<EvaluationSample>& next,
                                                      const EmbeddingTable* kept, EvaluationReader& reader) const {
  const auto is_needed = [&](const EvaluationSample& sample) { return reads_pixels || kept == nullptr || !kept->contains(sample.image); };
  const auto needed = [&](const std::vector<EvaluationSample>& batch) {
    std::vector<std::int64_t> out;
    for (const EvaluationSample& sample : batch)
      if (is_needed(sample)) out.push_back(sample.index);
    return out;
  };
  std::vector<ImageShare::Image> all = context.ranks->read_images(*order, source, needed(samples), needed(next), reads_pixels);
  auto image = all.begin();
  std::vector<EvaluationSample> good;
  for (EvaluationSample& sample : samples) {
    if (is_needed(sample)) {
      ImageShare::Image read = std::move(*image++);
      if (!read.bad_reason.empty()) {
        reader.reject(read.bad_reason, read.text);
        continue;
      }
      sample.pixels = read.pixels;
      sample.mask = std::move(read.mask);
      sample.depth = std::move(read.depth);
    }
    good.push_back(std::move(sample));
  }
  return good;
}

EmbeddingTable* Pass::kept() const {
  FeatureStore* const store = embedder.feature_store();
  const bool embeddings_alone = images == EvaluationImages::prepared && needs == ViewNeeds{} && embedder.compares_by_cosine();
  return store != nullptr && embeddings_alone ? &store->images(*source) : nullptr;
}

TowerFeatures Pass::encode_images(const std::vector<EvaluationSample>& samples, EmbeddingTable* kept) const {
  std::vector<std::size_t> all(samples.size());
  std::iota(all.begin(), all.end(), 0);
  if (kept == nullptr) return computed(samples, all);
  std::vector<std::uint64_t> of;
  for (const EvaluationSample& sample : samples) of.push_back(sample.image);
  TowerFeatures features;
  features.global = kept->rows(of, [&](const std::vector<std::size_t>& missing) { return computed(samples, missing).global; });
  return features;
}

TowerFeatures Pass::computed(const std::vector<EvaluationSample>& samples, const std::vector<std::size_t>& chosen) const {
  std::vector<at::Tensor> pixels;
  std::vector<std::int64_t> indices;
  for (const std::size_t i : chosen) {
    pixels.push_back(samples[i].pixels);
    indices.push_back(samples[i].index);
  }
  const bool read = on_all_ranks();
  TowerFeatures features =
      embedder.encode_images(read ? context.ranks->images_read(indices) : image_batch(pixels, embedder.preprocessing()), needs);
  check_finite(features.global, [&](std::size_t row) { return "the image " + samples[chosen[row]].sample.key; });
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
  const bool shared = on_all_ranks();
  if (shared)
    is_known = [](std::uint64_t) { return true; };
  else if (table != nullptr && !reads_pixels)
    is_known = [table](std::uint64_t image) { return table->contains(image); };
  const std::int64_t at_a_time = context.ranks != nullptr ? context.ranks->batch_size(context.batch_size) : context.batch_size;
  EvaluationReader reader(source, embedder.preprocessing(), at_a_time, context.threads, max_samples, images, is_known, context.reported);
  const std::int64_t before = table != nullptr ? table->size() : 0;
  std::int64_t read = 0, used = 0, equal = 0;
  std::unordered_set<std::uint64_t> known;
  std::string first_equal;
  std::vector<EvaluationSample> next = reader.next();
  while (!next.empty()) {
    std::vector<EvaluationSample> samples = std::exchange(next, {});
    if (shared) {
      next = reader.next();  // read before the batch is embedded, so that the other ranks can begin with the next one
      samples = read_on_all_ranks(std::move(samples), next, table, reader);
    }
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
    samples.clear();
    if (!shared) next = reader.next();
  }
  reader.end();
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

const at::Tensor& patches_of(const TowerFeatures& features, const std::string& task) {
  if (!features.encoder_tokens.defined() || features.mask.defined())
    user_error(task, ": this model's image encoder outputs no grid of patches");
  return features.encoder_tokens;
}

TowerFeatures Pass::run_and_keep(TaskResult& result, const BatchBody& body) const {
  std::vector<TowerFeatures> batches;
  run(result, [&](const std::vector<EvaluationSample>& samples, const TowerFeatures& features) {
    body(samples, features);
    batches.push_back(embedder.compact(features));
  });
  return joined(batches);
}

metrics::SimilarityTile similarity_tile(const Embedder& embedder, const TowerFeatures& images, const TowerFeatures& texts) {
  return [&embedder, images, texts](metrics::RowRange some_images, metrics::RowRange some_texts) {
    return embedder.similarity(slice(images, some_images), slice(texts, some_texts));
  };
}

std::vector<std::string> first_captions(const std::vector<EvaluationSample>& samples) {
  std::vector<std::string> captions;
  for (const EvaluationSample& sample : samples) captions.push_back(sample.sample.captions.front());
  return captions;
}

std::vector<std::string> tokens_of(const Embedder& embedder, const TowerInput& input, std::int64_t row) {
  const at::Tensor ids = input.ids[row];
  const std::int64_t count = input.mask.defined() ? input.mask[row].sum().item<std::int64_t>() : ids.size(0);
  return embedder.token_texts(to_vector<std::int64_t>(ids.narrow(0, 0, count)));
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
    classes.push_back(embedder.compact(embedder.classes(embed_texts(embedder, prompts, needs), static_cast<std::int64_t>(forms))));
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
