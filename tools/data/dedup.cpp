#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "src/base/progress.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/row_filter.h"
#include "src/data/image/encode.h"
#include "src/data/loading/sample_pass.h"
#include "src/data/packing/near_duplicates.h"
#include "tools/command_line.h"
#include "tools/data/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct DedupOptions {
  std::string embeddings;
  std::string tensor = "image_embeddings";
  std::string source;
  std::vector<std::string> settings;
  std::string id_field = "uid";
  std::string out;
  std::string removed;
  DuplicateSettings duplicates;
  std::optional<int> threads;

  bool writes_ids() const { return out.ends_with(".npy"); }
};

struct SideId : SampleOutcome {
  std::string id;
};

/// Returns the ids of the rows: the keys, or with --source the side field of the sample with the row's key. The embeddings of a source are in
/// its order; samples that tessera-embed left out have no row.
std::vector<SampleId> ids_of(const StoredEmbeddings& rows, const DedupOptions& options) {
  std::vector<std::string> texts = rows.keys();
  if (texts.empty()) user_error(options.embeddings, ": has no keys: write it with tessera-embed, which stores them in the file or in NAME.keys.txt");
  if (!options.source.empty()) {
    const std::shared_ptr<const Source> source = sources().make({options.source, settings_of(options.settings)}, "--source");
    SamplePass<SideId> pass({.source = source, .count = source->size(), .threads = 4, .ahead = 64},
                            [&](Sample& sample, std::int64_t, SideId& out) {
                              if (sample.fields.empty()) return;
                              const nlohmann::json id = json_member(parse_python_json(sample.fields), options.id_field);
                              if (id.is_string()) out.id = id.get<std::string>();
                            });
    Progress progress("ids", "samples");
    std::size_t row = 0;
    for (std::int64_t i = 0; i < source->size() && row < texts.size(); ++i) {
      const SideId found = pass.next();
      if (found.good() && found.key == texts[row]) texts[row++] = found.id;
      progress.show(i + 1, source->size());
    }
    if (row < texts.size())
      user_error(options.embeddings, ": ", source->describe(), " does not have the key ", texts[row], " of row ", row,
                 " after those of the rows before it: give the source that was embedded");
  }
  std::vector<SampleId> out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = parse_sample_id(texts[i]);
    if (!id && texts[i].empty())
      user_error(options.embeddings, ": row ", i, ", ", rows.keys()[i], ": the sample has no side field ", options.id_field,
                 " with a text: name the field with --id-field, or let --out end in .txt for a list of keys");
    if (!id)
      user_error(options.embeddings, ": row ", i, ", ", rows.keys()[i], ": its id \"", texts[i],
                 "\" is not 32 hexadecimal digits: name the embedded source with --source and the side field with --id-field, or let --out end in "
                 ".txt for a list of keys");
    out.push_back(*id);
  }
  return out;
}

/// The ids are sorted, so that IdList needs no sorted copy of them.
void write_ids(const std::string& path, std::vector<SampleId> ids) {
  std::ranges::sort(ids);
  io::AtomicFile file(path);
  file.write(npy_header("<u8", {std::ssize(ids), 2}));
  file.write(ids.data(), ids.size() * sizeof(SampleId));
  file.commit();
}

std::string row_name(const StoredEmbeddings& rows, std::int64_t row) {
  return rows.keys().empty() ? std::to_string(row) : rows.keys()[static_cast<std::size_t>(row)];
}

void write_removed(const std::string& path, const StoredEmbeddings& rows, const Duplicates& found) {
  io::AtomicFile file(path);
  const auto* of = found.of.const_data_ptr<std::int64_t>();
  const auto* cosine = found.cosine.const_data_ptr<float>();
  for (std::int64_t row = 0; row < rows.size(); ++row)
    if (of[row] >= 0) file.write(concat(row_name(rows, row), "\t", row_name(rows, of[row]), "\t", cosine[row], "\n"));
  file.commit();
}

int run_dedup(const DedupOptions& options) {
  if (!options.writes_ids() && !options.out.ends_with(".txt"))
    user_error("--out ", options.out, ": the ending decides the format: .npy for ids that filter_ids reads, .txt for keys");
  if (options.threads) at::set_num_threads(*options.threads);
  const StoredEmbeddings rows(options.embeddings, options.tensor);
  const std::vector<SampleId> ids = options.writes_ids() ? ids_of(rows, options) : std::vector<SampleId>{};
  std::optional<Progress> progress;
  std::string shown;
  const Duplicates found = find_near_duplicates(rows, options.duplicates, [&](const char* phase, std::int64_t done, std::int64_t total) {
    if (std::exchange(shown, phase) != phase) progress.emplace(phase, "rows");
    progress->show(done, total);
  });
  progress.reset();
  const auto* of = found.of.const_data_ptr<std::int64_t>();
  std::vector<SampleId> kept;
  std::string keys;
  std::int64_t removed = 0;
  for (std::int64_t row = 0; row < rows.size(); ++row) {
    removed += of[row] >= 0 ? 1 : 0;
    if (of[row] >= 0) continue;
    if (options.writes_ids())
      kept.push_back(ids[static_cast<std::size_t>(row)]);
    else
      keys += row_name(rows, row) + "\n";
  }
  if (options.writes_ids())
    write_ids(options.out, std::move(kept));
  else
    io::write_file(options.out, keys);
  if (!options.removed.empty()) write_removed(options.removed, rows, found);
  std::cout << options.out << ": " << with_thousands(rows.size() - removed) << " of " << with_thousands(rows.size()) << " kept; "
            << with_thousands(removed) << " have a cosine of at least " << options.duplicates.threshold << " with another one of their cluster\n";
  return 0;
}

}  // namespace

Command dedup_command(CLI::App& program) {
  const auto options = std::make_shared<DedupOptions>();
  CLI::App* app = program.add_subcommand(
      "dedup", "Finds near duplicates by embeddings (SemDeDup), and writes the ids of the samples to keep, for filter_ids.");
  app->footer(
      "Example: tessera-embed --checkpoint runs/clip --source '{name: webdataset, path: a.tar}' --out a.safetensors\n"
      "         tessera-data dedup --embeddings a.safetensors --source webdataset --set path=a.tar --threshold 0.95 --out kept.npy");
  app->add_option("--embeddings", options->embeddings, "file of tessera-embed, or another .npy or .safetensors file of floats [N, D]")->required();
  add_default(*app, "--tensor", options->tensor, "name of the matrix in a .safetensors file");
  app->add_option("--source", options->source, "the source that was embedded, if the ids are in its side fields: " + join_names(sources().names()));
  add_overrides(*app, "--set", options->settings, "a setting of the source");
  add_default(*app, "--id-field", options->id_field, "side field that holds a sample's id, 32 hexadecimal digits");
  app->add_option("--out", options->out, "the file to write: .npy with the ids to keep, or .txt with their keys")->required();
  app->add_option("--removed", options->removed, "also write a line for each removed row: its key, that of the row that it duplicates, and their cosine");
  add_default(*app, "--threshold", options->duplicates.threshold, "least cosine of two near duplicates")->check(CLI::Range(-1.0, 1.0));
  app->add_option("--clusters", options->duplicates.clusters, "number of clusters (default: the square root of the number of rows)")
      ->check(positive_number());
  add_default(*app, "--nearest", options->duplicates.nearest, "number of clusters in which each row is compared; more find more duplicates")
      ->check(positive_number());
  add_default(*app, "--iterations", options->duplicates.iterations, "iterations of k-means")->check(positive_number());
  add_default(*app, "--keep", options->duplicates.keep, "which of two duplicates is kept: that far from its cluster's center, near, or the first in the file")
      ->check(CLI::IsMember({"far", "near", "first"}));
  add_default(*app, "--seed", options->duplicates.seed, "seed of the clusters");
  add_threads(*app, options->threads);
  return {app, [options] { return run_dedup(*options); }};
}

}  // namespace tessera::tools
