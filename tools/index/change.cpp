#include <iostream>
#include <memory>

#include "src/index/index_writer.h"
#include "tools/index/command.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

struct ChangeOptions {
  std::string folder;
  std::vector<std::string> documents;  // files with the documents to add
  FileOptions files;
  bool replace = false;
  std::vector<std::string> ids;
  std::string ids_file;
  bool missing_ok = false;
  bool compact = false;
  int threads = 0;
};

int compact(const ChangeOptions& options) {
  const index::Change change = index::compact_index(options.folder, options.threads);
  std::cout << options.folder << ": compacted to " << with_thousands(change.documents) << " documents" << std::endl;
  return 0;
}

int add(const ChangeOptions& options) {
  const index::SparseFileOptions files = options.files.for_library(index::names_of(options.folder));
  const index::Change change =
      index::add_documents(options.folder, read_documents(options.documents, files), options.replace, options.threads);
  std::cout << options.folder << ": " << with_thousands(change.documents) << " documents added";
  if (change.replaced > 0) std::cout << ", replacing " << with_thousands(change.replaced);
  if (change.cut_weights > 0)
    std::cout << "; " << with_thousands(change.cut_weights) << " weights above the index's largest were cut to it";
  std::cout << std::endl;
  return 0;
}

int remove(const ChangeOptions& options) {
  const std::vector<std::string> ids = listed_ids(options.ids, options.ids_file);
  if (ids.empty() && !options.compact) user_error("nothing to remove: give --ids ID,... or --ids-file FILE");
  if (!ids.empty()) {
    const index::Change change = index::remove_documents(options.folder, ids, options.missing_ok, options.threads);
    std::cout << options.folder << ": " << with_thousands(change.documents) << " documents removed" << std::endl;
  }
  return options.compact ? compact(options) : 0;
}

void add_common(CLI::App& app, ChangeOptions& options) {
  app.add_option("index", options.folder, "folder of the index")->required();
  add_threads(app, options.threads);
}

}  // namespace

Command add_command(CLI::App& program) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* app = program.add_subcommand("add", "Adds documents to an index.");
  add_common(*app, *options);
  app->add_option("documents", options->documents, "files of sparse vectors")->required();
  add_file_options(*app, options->files);
  app->add_flag("--replace", options->replace, "replace documents of the index that have the same ids");
  return {app, [options] { return add(*options); }};
}

Command remove_command(CLI::App& program) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* app = program.add_subcommand("remove", "Removes documents from an index; `compact` frees their space.");
  add_common(*app, *options);
  app->add_option("--ids", options->ids, "ids of documents, separated by commas")->delimiter(',');
  app->add_option("--ids-file", options->ids_file, "text file with one id per line");
  app->add_flag("--missing-ok", options->missing_ok, "ignore ids that are not in the index");
  app->add_flag("--compact", options->compact, "compact afterwards");
  return {app, [options] { return remove(*options); }};
}

Command compact_command(CLI::App& program) {
  const auto options = std::make_shared<ChangeOptions>();
  CLI::App* app = program.add_subcommand("compact", "Rewrites an index as one segment, without the removed documents.");
  add_common(*app, *options);
  return {app, [options] { return compact(*options); }};
}

}  // namespace tessera::tools
