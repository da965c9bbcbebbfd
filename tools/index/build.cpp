#include <chrono>
#include <iostream>
#include <memory>

#include "src/index/index_writer.h"
#include "tools/index/command.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera::tools {
namespace {

struct BuildOptions {
  std::string folder;
  std::vector<std::string> documents;
  FileOptions files;
  index::BuildSettings settings;
};

int build(const BuildOptions& options) {
  index::BuildSettings settings = options.settings;
  const index::SparseFileOptions files = options.files.for_library();
  settings.names = files.names;
  const auto start = std::chrono::steady_clock::now();
  index::SparseVectors documents = read_documents(options.documents, files);
  const std::int64_t weights = documents.count();
  const index::Change change = index::build_index(options.folder, std::move(documents), settings);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << options.folder << ": " << with_thousands(change.documents) << " documents, " << with_thousands(weights)
            << " weights, " << format_duration(seconds.count()) << std::endl;
  if (change.cut_weights > 0)
    std::cout << with_thousands(change.cut_weights) << " weights above --largest-weight were cut to it" << std::endl;
  return 0;
}

}  // namespace

index::SparseFileOptions FileOptions::for_library(const index::TokenNames& names) const {
  index::SparseFileOptions out{format, names, ciff_scale};
  if (!vocabulary.empty()) out.names = index::TokenNames::read(vocabulary);
  return out;
}

void add_file_options(CLI::App& app, FileOptions& options) {
  app.add_option("--format", options.format,
                 "format of the files, needed if their endings do not tell it: " + join_names(index::sparse_file_formats()))
      ->check(CLI::IsMember(index::sparse_file_formats()));
  app.add_option("--vocabulary", options.vocabulary,
                 "text file with one token name per line (default: tokens are numbers)");
  add_default(app, "--ciff-scale", options.ciff_scale, "scale of ciff files: their integers are weights times this number")
      ->check(positive_number());
}

std::vector<std::string> listed_ids(std::vector<std::string> ids, const std::string& ids_file) {
  if (ids_file.empty()) return ids;
  for (std::string& line : split_lines(io::read_file(ids_file)))
    if (!line.empty()) ids.push_back(std::move(line));
  return ids;
}

index::SparseVectors read_documents(const std::vector<std::string>& paths, const index::SparseFileOptions& options) {
  index::SparseVectors all = index::read_sparse_file(paths.front(), options);
  for (std::size_t i = 1; i < paths.size(); ++i) {
    const index::SparseVectors more = index::read_sparse_file(paths[i], options);
    all.vocab_size = std::max(all.vocab_size, more.vocab_size);
    const std::int64_t before = all.count();
    for (std::int64_t r = 1; r <= more.rows(); ++r) all.indptr.push_back(before + more.indptr[r]);
    all.tokens.insert(all.tokens.end(), more.tokens.begin(), more.tokens.end());
    all.weights.insert(all.weights.end(), more.weights.begin(), more.weights.end());
    all.ids.insert(all.ids.end(), more.ids.begin(), more.ids.end());
  }
  return all;
}

Command build_command(CLI::App& program) {
  const auto options = std::make_shared<BuildOptions>();
  CLI::App* app = program.add_subcommand("build", "Builds an index of sparse encodings.");
  app->footer("Example: tessera-index build --vocabulary vocab.txt pictures.index pictures.safetensors");
  app->add_option("index", options->folder, "folder of the index, created if it does not exist")->required();
  app->add_option("documents", options->documents, "files of sparse vectors")->required();
  add_file_options(*app, options->files);
  add_default(*app, "--impact-bits", options->settings.impact_bits, "bits per stored weight: 8 or 16");
  app->add_option("--largest-weight", options->settings.largest_weight,
                  "weight that the largest stored number represents; larger weights are cut to it, also those of documents "
                  "added later (default: the documents' largest)")
      ->check(positive_number());
  app->add_flag("--unit-length", options->settings.unit_length,
                "scale documents and queries to length 1, so that scores are cosines, as in training");
  app->add_flag("--overwrite", options->settings.overwrite, "replace an existing index");
  add_threads(*app, options->settings.threads);
  return {app, [options] { return build(*options); }};
}

}  // namespace tessera::tools
