#pragma once

#include <string>
#include <vector>

#include "src/index/sparse_files.h"
#include "tools/command_line.h"

/// The subcommands of the program tessera-index.
namespace tessera::tools {

Command build_command(CLI::App& program);
Command add_command(CLI::App& program);
Command remove_command(CLI::App& program);
Command compact_command(CLI::App& program);
Command search_command(CLI::App& program);
Command info_command(CLI::App& program);
Command convert_command(CLI::App& program);

/// Options for reading files of sparse vectors.
struct FileOptions {
  std::string format;
  std::string vocabulary;
  double ciff_scale = 100;

  /// Returns the options in the form that the library takes. Without --vocabulary, `names` are used as the token names.
  index::SparseFileOptions for_library(const index::TokenNames& names = {}) const;
};

/// Adds --format, --vocabulary and --ciff-scale.
void add_file_options(CLI::App& app, FileOptions& options);

/// Returns `ids`, followed by the lines of the file `ids_file` unless its name is empty.
std::vector<std::string> listed_ids(std::vector<std::string> ids, const std::string& ids_file);

/// Reads the rows of all files into one set of vectors. Throws UserError if a file cannot be read.
index::SparseVectors read_documents(const std::vector<std::string>& paths, const index::SparseFileOptions& options);

}  // namespace tessera::tools
