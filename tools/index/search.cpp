#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include "src/index/index.h"
#include "tools/index/command.h"
#include "tools/index/queries.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::tools {
namespace {

struct SearchOptions {
  std::string folder;
  QueryOptions queries;
  std::vector<std::string> ids;
  std::string ids_file;
  std::int64_t k = 10;
  std::string output = "jsonl";
  std::string tag = "tessera";
  int threads = 0;
  bool timings = false;
};

index::Filter filter_of(const SearchOptions& options, const index::Index& index) {
  index::Filter filter{tokens_of(options.queries.must, index, "--must"),
                       tokens_of(options.queries.must_not, index, "--must-not"),
                       tokens_of(options.queries.should, index, "--should")};
  const std::vector<std::string> ids = listed_ids(options.ids, options.ids_file);
  filter.only_documents = !ids.empty() || !options.ids_file.empty();
  filter.documents = index.find(ids);
  std::sort(filter.documents.begin(), filter.documents.end());
  return filter;
}

/// Returns a text that becomes a column of trec output. Throws UserError if it contains a space, because spaces separate the columns.
std::string_view trec_column(std::string_view text) {
  if (text.find(' ') != std::string_view::npos)
    user_error("--output trec: \"", printable(text, 100), "\" contains a space, which separates columns: take --output jsonl or tsv");
  return text;
}

void print(const SearchOptions& options, const index::Index& index, const std::string& query, const index::Hits& hits) {
  if (options.output == "jsonl") {
    nlohmann::ordered_json results = nlohmann::ordered_json::array();
    for (const index::Hit& hit : hits.best) results.push_back({{"id", index.id(hit.document)}, {"score", hit.score}});
    std::cout << nlohmann::ordered_json({{"query", query}, {"results", results}}).dump() << "\n";
    return;
  }
  std::int64_t rank = 0;
  for (const index::Hit& hit : hits.best) {
    ++rank;
    char score[32];
    std::snprintf(score, sizeof(score), "%.6g", hit.score);
    if (options.output == "tsv")
      std::cout << query << "\t" << rank << "\t" << index.id(hit.document) << "\t" << score << "\n";
    else
      std::cout << concat(trec_column(query), " Q0 ", trec_column(index.id(hit.document)), " ", rank, " ", score, " ",
                          trec_column(options.tag), "\n");
  }
}

int search(const SearchOptions& options) {
  std::signal(SIGPIPE, SIG_DFL);  // ends quietly with its reader (| head), because nothing else is lost
  const index::Index index(options.folder, options.threads);
  const index::Filter filter = filter_of(options, index);
  std::int64_t count = 0;
  double seconds = 0;
  for_each_query(options.queries, index, [&](const index::SparseVectors& queries) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<index::Hits> found = index::search_all(index, queries, options.k, filter, options.threads);
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    count += queries.rows();
    for (std::int64_t q = 0; q < queries.rows(); ++q) print(options, index, queries.ids[q], found[q]);
    std::cout << std::flush;
  });
  if (options.timings)
    std::cerr << with_thousands(count) << " queries in " << format_duration(seconds) << ": "
              << (count > 0 ? static_cast<double>(count) / seconds : 0) << " queries/s" << std::endl;
  return 0;
}

}  // namespace

Command search_command(CLI::App& program) {
  const auto options = std::make_shared<SearchOptions>();
  QueryOptions& queries = options->queries;
  CLI::App* app =
      program.add_subcommand("search", "Finds the documents with the largest inner products with queries; the search is exact.");
  app->footer(
      "A query in words is \"red circle:0.5\": tokens with their weights (1 if no weight is given).\n"
      "Lists of tokens are TOKEN,... or @FILE with one token per line; a token is a name, or a number in an index without\n"
      "names.\n"
      "Examples: tessera-index search pictures.index --queries texts.safetensors --k 100 --output trec\n"
      "          tessera-index search pictures.index --lines -        # typed lines, each answered at once\n"
      "          tessera-index search pictures.index --model runs/stair --texts captions.txt\n"
      "          tessera-index search pictures.index --must red,circle --must-not blue");
  app->add_option("index", options->folder, "folder of the index")->required();
  app->add_option("--queries", queries.file, "file of sparse vectors");
  app->add_option("--model", queries.model, "run, checkpoint folder or model file that encodes --texts and --images");
  app->add_option("--texts", queries.texts, "text file with one query per line, for the model; - is standard input");
  app->add_flag("--text-encoder-free", queries.text_encoder_free,
                "encode texts without the text tower, with weight 1 for each of their tokens");
  app->add_option("--images", queries.images, "image files as queries, for the model");
  app->add_option("--tokens", queries.tokens, "queries in words");
  app->add_option("--lines", queries.lines, "text file with one query in words per line; - is standard input");
  add_file_options(*app, queries.files);
  app->add_option("--must", queries.must, "only documents in which all of these tokens are active")->delimiter(',');
  app->add_option("--must-not", queries.must_not, "only documents in which none of these tokens is active")->delimiter(',');
  app->add_option("--should", queries.should, "only documents in which at least one of these tokens is active")
      ->delimiter(',');
  app->add_option("--allow-tokens", queries.allow, "use only these tokens of the queries")->delimiter(',');
  app->add_option("--block-tokens", queries.block, "ignore these tokens of the queries")->delimiter(',');
  app->add_option("--ids", options->ids, "only these documents")->delimiter(',');
  app->add_option("--ids-file", options->ids_file, "text file with one id per line, used like --ids");
  add_default(*app, "--k", options->k, "number of documents per query")->check(positive_number());
  add_default(*app, "--output", options->output, "jsonl, tsv (query, rank, id, score) or trec")
      ->check(CLI::IsMember({"jsonl", "tsv", "trec"}));
  add_default(*app, "--tag", options->tag, "name of the run in trec output");
  add_threads(*app, options->threads);
  app->add_flag("--timings", options->timings, "print on standard error how long the searches took");
  return {app, [options] { return search(*options); }};
}

}  // namespace tessera::tools
