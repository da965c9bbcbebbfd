#pragma once

#include <string>
#include <vector>

#include "tools/command_line.h"
#include <tessera/index/sparse_files.h>

/// The subcommands of tessera-index.
namespace tessera::tools {

Command build_command(CLI::App& program);
Command add_command(CLI::App& program);
Command remove_command(CLI::App& program);
Command compact_command(CLI::App& program);
Command search_command(CLI::App& program);
Command info_command(CLI::App& program);
Command convert_command(CLI::App& program);

/// How files of sparse vectors are to be read.
struct FileOptions {
  std::string format;
  std::string vocabulary;
  double ciff_scale = 100;

  /// The same for the library; without a vocabulary of their own, with these names.
  index::SparseFileOptions for_library(const index::TokenNames& names = {}) const;
};

/// Adds --format, --vocabulary and --ciff-scale.
void add_file_options(CLI::App& app, FileOptions& options);

/// All rows of some files. Throws UserError if they differ in their vocabularies.
index::SparseVectors read_documents(const std::vector<std::string>& paths, const index::SparseFileOptions& options);

}  // namespace tessera::tools
