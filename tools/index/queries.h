#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/index/command.h"
#include <tessera/index/index.h>

/// Where the queries of a search come from.
namespace tessera::tools {

struct QueryOptions {
  std::string file;  // of sparse vectors
  FileOptions files;
  std::vector<std::string> tokens;  // one query each: "red circle:0.5"
  std::string lines;                // file of such lines, or "-" for standard input
  std::string model;                // run, checkpoint or model file, for:
  std::string texts;                // file with a text a line, or "-" for standard input
  bool text_encoder_free = false;   // texts by their tokens alone
  std::vector<std::string> images;  // picture files
  std::vector<std::string> must, must_not, should;
  std::vector<std::string> allow, block;
};

/// Calls answer(queries) for all queries, in order: together, or a line at a time where they are typed. Queries are
/// non-negative vectors over the index's vocabulary, with the block and allow lists applied. With no query given, the tokens
/// of --must and --should are one.
void for_each_query(const QueryOptions& options, const index::Index& index,
                    const std::function<void(const index::SparseVectors&)>& answer);

/// A list's tokens: each item is a name, or @FILE with a name a line. Throws UserError for one that the index cannot have.
std::vector<std::int32_t> tokens_of(const std::vector<std::string>& items, const index::Index& index,
                                    const std::string& option);

}  // namespace tessera::tools
