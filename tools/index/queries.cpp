#include "tools/index/queries.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>

#ifdef TESSERA_WITH_DATA
#include "src/evaluation/embedding_rows.h"
#include "tools/index/sparse_model.h"
#endif
#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

/// Parses a word of a query: a token, optionally followed by a colon and its weight. A token's name may contain a colon.
index::TokenWeight parse_word(const std::string& word, const index::TokenNames& names, const std::string& place) {
  const std::size_t colon = word.rfind(':');
  float weight = 0;
  if (colon != std::string::npos && colon > 0 && !names.find(word)) {
    const char* const end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(word.data() + colon + 1, end, weight);
    if (error == std::errc() && stop == end) return {names.at(word.substr(0, colon), place), weight};
  }
  return {names.at(word, place), 1};
}

/// Appends one query, given as words separated by spaces. The weights of a repeated word are added up.
void append_words(index::SparseVectors& queries, const std::string& line, const index::TokenNames& names,
                  const std::string& place) {
  std::map<std::int32_t, float> weights;
  for (const std::string& word : split(line, ' ')) {
    if (strip(word).empty()) continue;
    const index::TokenWeight each = parse_word(std::string(strip(word)), names, place);
    weights[each.token] += each.weight;
  }
  std::vector<index::TokenWeight> row;
  for (const auto& [token, weight] : weights) row.push_back({token, weight});
  index::append_row(queries, std::to_string(queries.rows()), std::move(row), place);
}

/// Removes tokens from the queries: all tokens in `block`, and, if `allow` is given, all tokens that are not in it.
void apply_lists(index::SparseVectors& queries, const std::optional<std::vector<std::int32_t>>& allow,
                 const std::vector<std::int32_t>& block) {
  std::vector<bool> kept(static_cast<std::size_t>(queries.vocab_size), !allow);
  if (allow)
    for (const std::int32_t token : *allow) kept[token] = true;
  for (const std::int32_t token : block) kept[token] = false;
  for (std::size_t i = 0; i < queries.tokens.size(); ++i)
    if (!kept[queries.tokens[i]]) queries.weights[i] = 0;
  index::normalize_rows(queries, "queries");
}

/// Encodes the queries and calls visit(queries): once for all images and once for all texts of a file, but once per line for texts read
/// from standard input.
void for_each_encoded_query(const QueryOptions& options, const std::function<void(index::SparseVectors)>& visit) {
#ifdef TESSERA_WITH_DATA
  if (options.model.empty()) user_error("--texts and --images need --model RUN, the model that encodes them");
  const SparseModel model(options.model);
  if (!options.images.empty()) visit(model.encode_images(options.images));
  if (options.texts == "-") {
    std::string line;
    for (std::int64_t number = 0; std::getline(std::cin, line); ++number) {
      index::SparseVectors query = model.encode_texts({line}, options.text_encoder_free);
      query.ids.front() = std::to_string(number);
      visit(std::move(query));
    }
  } else if (!options.texts.empty()) {
    visit(model.encode_texts(split_lines(io::read_data_file(options.texts)), options.text_encoder_free));
  }
#else
  static_cast<void>(options), static_cast<void>(visit);
  user_error("--texts and --images need a build with the data libraries (TESSERA_WITH_DATA)");
#endif
}

}  // namespace

std::vector<std::int32_t> tokens_of(const std::vector<std::string>& items, const index::Index& index,
                                    const std::string& option) {
  const index::TokenNames& names = index.names();
  std::vector<std::int32_t> tokens;
  for (const std::string& item : items) {
    if (!item.starts_with('@') || names.find(item)) {
      tokens.push_back(names.at(item, option));
      continue;
    }
    const std::string path = item.substr(1);
    for (const std::string& line : split(io::read_data_file(path), '\n'))
      if (!strip(line).empty()) tokens.push_back(names.at(std::string(strip(line)), path));
  }
  for (const std::int32_t token : tokens)
    if (token >= index.vocab_size())
      user_error(option, ": token ", token, " is outside the index's vocabulary of ", index.vocab_size());
  return tokens;
}

void for_each_query(const QueryOptions& options, const index::Index& index,
                    const std::function<void(const index::SparseVectors&)>& answer) {
  const bool for_model = !options.texts.empty() || !options.images.empty();
  if (for_model + !options.file.empty() + !options.lines.empty() + !options.tokens.empty() > 1)
    user_error("give either --queries, or --texts and --images, or --tokens, or --lines: a search takes queries of one kind");
  const index::TokenNames& names = index.names();
  std::optional<std::vector<std::int32_t>> allow;
  if (!options.allow.empty()) allow = tokens_of(options.allow, index, "--allow-tokens");
  const std::vector<std::int32_t> block = tokens_of(options.block, index, "--block-tokens");
  const auto finish = [&](index::SparseVectors queries, const std::string& origin) {
    if (queries.vocab_size > index.vocab_size())
      user_error(origin, ": a vocabulary of ", queries.vocab_size, " is larger than the index's, ", index.vocab_size());
    queries.vocab_size = index.vocab_size();
    apply_lists(queries, allow, block);
    answer(queries);
  };
  const index::SparseVectors none{index.vocab_size()};

  if (for_model) {
    for_each_encoded_query(options, [&](index::SparseVectors queries) { finish(std::move(queries), options.model); });
  } else if (!options.file.empty()) {
    finish(index::read_sparse_file(options.file, options.files.for_library(names)), options.file);
  } else if (!options.lines.empty()) {
    std::ifstream file;
    if (options.lines != "-") {
      file.open(options.lines);
      if (!file) user_error(options.lines, ": cannot read");
    }
    std::istream& in = options.lines == "-" ? std::cin : file;
    std::string line;
    for (std::int64_t number = 0; std::getline(in, line); ++number) {
      index::SparseVectors query = none;
      append_words(query, line, names, concat(options.lines == "-" ? "line" : options.lines, ":", number + 1));
      query.ids.front() = std::to_string(number);
      finish(std::move(query), options.lines);
    }
  } else {
    index::SparseVectors queries = none;
    for (const std::string& words : options.tokens) append_words(queries, words, names, "--tokens");
    if (options.tokens.empty()) {
      std::map<std::int32_t, float> weights;
      for (const auto* list : {&options.must, &options.should})
        for (const std::int32_t token : tokens_of(*list, index, "--must and --should")) weights[token] = 1;
      if (weights.empty())
        user_error(
            "no queries: give --queries FILE, --texts FILE, --images FILE, --tokens \"WORD ...\", --lines FILE, or "
            "--must TOKEN");
      std::vector<index::TokenWeight> row;
      for (const auto& [token, weight] : weights) row.push_back({token, weight});
      index::append_row(queries, "0", std::move(row), "--must");
    }
    finish(std::move(queries), "--tokens");
  }
}

}  // namespace tessera::tools
