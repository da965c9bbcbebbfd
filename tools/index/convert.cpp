#include <filesystem>
#include <iostream>
#include <memory>

#include "src/index/index.h"
#include "tools/index/command.h"
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

struct ConvertOptions {
  std::string input;
  std::string output;
  FileOptions files;
  std::string to;
};

int convert(const ConvertOptions& options) {
  check_folder_of("the output", options.output);
  index::SparseFileOptions files = options.files.for_library();
  index::SparseVectors vectors;
  if (std::filesystem::is_directory(options.input)) {
    const index::Index from(options.input);
    vectors = from.stored_vectors();
    if (options.files.vocabulary.empty()) files.names = from.names();
  } else {
    vectors = index::read_sparse_file(options.input, files);
  }
  files.format = options.to;
  index::write_sparse_file(options.output, vectors, files);
  std::cout << options.output << ": " << with_thousands(vectors.rows()) << " rows, " << with_thousands(vectors.count())
            << " weights" << std::endl;
  return 0;
}

int info(const std::string& folder) {
  const index::Index opened(folder);
  const index::Quantization& quantization = opened.quantization();
  std::cout << "documents       " << with_thousands(opened.documents()) << "\n"
            << "removed         " << with_thousands(opened.document_numbers() - opened.documents()) << "\n"
            << "segments        " << opened.segments() << "\n"
            << "weights         " << with_thousands(opened.postings()) << "\n"
            << "vocabulary      " << with_thousands(opened.vocab_size())
            << (opened.names().are_numbers() ? "" : ", with names") << "\n"
            << "stored weights  " << quantization.impact_bits << " bits, up to " << quantization.largest_weight
            << (quantization.unit_length ? ", of documents of length 1" : "") << "\n"
            << "files           " << format_bytes(static_cast<double>(opened.file_bytes())) << std::endl;
  return 0;
}

}  // namespace

Command convert_command(CLI::App& program) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* app =
      program.add_subcommand("convert", "Converts a file of sparse vectors, or an index, to another file format.");
  app->footer(
      "Examples: tessera-index convert pictures.safetensors pictures.ciff --vocabulary vocab.txt\n"
      "          tessera-index convert pictures.index readable.txt");
  app->add_option("input", options->input, "file of sparse vectors, or folder of an index")->required();
  app->add_option("output", options->output, "file to write")->required();
  add_file_options(*app, options->files);
  app->add_option("--to", options->to, "format of the output, needed if its ending does not tell it")
      ->check(CLI::IsMember(index::sparse_file_formats()));
  return {app, [options] { return convert(*options); }};
}

Command info_command(CLI::App& program) {
  const auto folder = std::make_shared<std::string>();
  CLI::App* app = program.add_subcommand("info", "Checks an index and prints what is in it.");
  app->add_option("index", *folder, "folder of the index")->required();
  return {app, [folder] { return info(*folder); }};
}

}  // namespace tessera::tools
