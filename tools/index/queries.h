#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/index/index.h"
#include "tools/index/command.h"

/// The options that select the queries of a search.
namespace tessera::tools {

struct QueryOptions {
  std::string file;  // file of sparse vectors
  FileOptions files;
  std::vector<std::string> tokens;  // each element is one query, such as "red circle:0.5"
  std::string lines;                // file with one such query per line, or "-" for standard input
  std::string model;                // run, checkpoint or model file whose model encodes `texts` and `images`
  std::string texts;                // file with one text per line, or "-" for standard input
  bool text_encoder_free = false;   // encode texts without the text tower, with weight 1 for each of their tokens
  std::vector<std::string> images;  // image files
  std::vector<std::string> must, must_not, should;
  std::vector<std::string> allow, block;
};

/// Calls answer(queries) for all queries, in order. Each line of --lines, and each text from standard input, has a call of its own; other
/// queries of one kind (such as all images) share a call. Queries are non-negative vectors over the index's vocabulary, with the allow and
/// block lists applied. If no query is given, the tokens of --must and --should form one.
void for_each_query(const QueryOptions& options, const index::Index& index,
                    const std::function<void(const index::SparseVectors&)>& answer);

/// Returns the tokens of a list. An item is a token's name, or @FILE for a file with one name per line. Throws UserError for a token that
/// the index does not know.
std::vector<std::int32_t> tokens_of(const std::vector<std::string>& items, const index::Index& index,
                                    const std::string& option);

}  // namespace tessera::tools
