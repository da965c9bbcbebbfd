#pragma once

#include <string>
#include <vector>

/// Data sets as the Hugging Face Hub publishes them: a folder with Parquet files and a README.md, whose YAML header lists the
/// configurations, the files of their splits (`configs`) and the names of the classes (`dataset_info`). The folder is local or remote
/// (hf://, s3://, gs://).
namespace tessera {

/// The part of a data set that is read. An empty configuration is the default one: that of the header with `default: true`, the one named
/// default, or the only one. An empty split is train or, if there is no such split, all files that belong to no other split.
struct TablePart {
  std::string configuration, split;
};

struct PublishedTables {
  std::vector<std::string> files;  // sorted
  std::string configuration;       // empty: the folder does not name it
};

/// Returns whether the README.md of a folder lists configurations. A README.md in a bucket (s3://, gs://) is not read.
bool lists_configurations(const std::string& folder);

/// Returns the Parquet files of a part: those that the header lists or, if it lists no configurations, the files SPLIT-*.parquet and
/// SPLIT.parquet of the folder and of its folder data, or all files of its folder SPLIT. The files of a configuration are in a folder of its
/// name. Returns no files if there are none. Throws UserError naming the configurations or splits if the part does not exist, or if several
/// configurations might be meant.
PublishedTables published_tables(const std::string& folder, const TablePart& part);

/// Returns the names of the classes of a column, as the README.md of the file's data set lists them: in the file's folder or in the two
/// folders above it, or at the top of a repository of the Hub. Empty if there are none.
std::vector<std::string> published_class_names(const std::string& file, const std::string& configuration, const std::string& column);

}  // namespace tessera
