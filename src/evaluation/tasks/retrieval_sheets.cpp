#include <algorithm>

#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/tasks/pass.h"
#include "src/evaluation/tasks/retrieval_sheets.h"
#include "src/report/cards.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr std::int64_t kFollowed = 32;  // number of queries per direction (image to text, text to image) that may get a sheet
constexpr std::ptrdiff_t kSheets = 6;   // number of queries per direction that get a sheet
constexpr std::int64_t kItems = 5;

/// Sorts the queries by the rank of the correct item, worst rank first, and keeps only the first kSheets queries.
template <class Query>
void keep_failures(std::vector<Query>& queries) {
  std::stable_sort(queries.begin(), queries.end(), [](const Query& a, const Query& b) { return a.sheet.rank > b.sheet.rank; });
  queries.resize(static_cast<std::size_t>(std::min(kSheets, std::ssize(queries))));
}

}  // namespace

void Captions::add(const std::vector<std::string>& own) {
  texts.insert(texts.end(), own.begin(), own.end());
  owner.insert(owner.end(), own.size(), std::ssize(by_image));
  by_image.push_back(own);
}

nlohmann::json make_sheet(const RetrievalSheet& sheet) {
  nlohmann::json out = {{"images", nlohmann::json::array()}};
  const bool known = !sheet.query_image.empty();
  if (known) {
    const std::string place = sheet.rank == 0 ? "found first" : concat("right item at place ", sheet.rank + 1);
    out["tag"] = {{"text", sheet.rank < 0 ? "no right item" : place}, {"kind", sheet.rank == 0 ? "good" : "bad"}};
    const char* const caption = !sheet.query_name.empty() ? "" : sheet.text_to_image ? "ground truth" : "query";
    out["images"].push_back(report::image_part(sheet.query_image, sheet.query_name, caption));
  }
  if (sheet.text_to_image) {
    out["quote"] = sheet.query_text;
    if (known) out["images"][0]["box"] = "right";
    for (std::size_t i = 0; i < sheet.items.size(); ++i) {
      const RetrievalSheet::Item& item = sheet.items[i];
      out["images"].push_back(report::image_part(item.image, item.text, concat("#", i + 1, " \u00b7 ", fixed(item.score, 3))));
      out["images"].back()["box"] = item.right ? "right" : "wrong";
    }
    return out;
  }
  out["lead"] = "best captions";
  out["list"] = nlohmann::json::array();
  for (const RetrievalSheet::Item& item : sheet.items)
    out["list"].push_back({{"text", item.text}, {"score", fixed(item.score, 3)}, {"right", item.right}});
  const bool found = std::ranges::any_of(sheet.items, [](const auto& item) { return item.right; });
  if (!found && !sheet.truth.empty()) out["after"] = "its own: " + sheet.truth.front();
  return out;
}

void add_retrieval_cards(const std::vector<RetrievalSheet>& sheets, TaskResult& result) {
  const auto add = [&](bool text_to_image, const char* title, const char* note) {
    auto items = nlohmann::json::array();
    for (const RetrievalSheet& sheet : sheets)
      if (sheet.text_to_image == text_to_image) items.push_back(make_sheet(sheet));
    add_items({{"type", "image"}, {"title", title}, {"note", note}}, items, result);
  };
  add(true, "Text to image",
      "The five nearest images of each caption, with their cosines; the right one has a green box. Of 32 captions of the first batch, "
      "these are the ones whose image ranks lowest, failures first.");
  add(false, "Image to text",
      "The five nearest captions of each image; its own have a green box. Of 32 images spread over the data, these are the ones whose "
      "captions rank lowest, failures first.");
}

std::vector<std::string> prefixed(const std::vector<std::string>& texts, const std::string& prefix) {
  std::vector<std::string> out;
  for (const std::string& text : texts) out.push_back(prefix + text);
  return out;
}

RetrievalSheets::RetrievalSheets(const Embedder& embedder, std::string prompt_prefix, std::int64_t total)
    : embedder_(embedder), prompt_prefix_(std::move(prompt_prefix)), images_(total, kFollowed) {}

void RetrievalSheets::choose_captions(const Captions& captions) {
  ExampleChooser chooser(std::ssize(captions.texts), kFollowed);
  for (std::int64_t m = 0; m < std::ssize(captions.texts); ++m) {
    if (!chooser.choose(m)) continue;
    by_text_.push_back({m, {.text_to_image = true, .query_text = captions.texts[static_cast<std::size_t>(m)]}});
  }
}

void RetrievalSheets::add(const std::vector<EvaluationSample>& samples, const TowerFeatures& features, const Captions& captions) {
  add(samples, [&](const std::vector<std::int64_t>& rows) {
        if (!queries_.global.defined()) {
          std::vector<std::string> texts;
          for (const std::int64_t row : rows) texts.push_back(captions.texts[static_cast<std::size_t>(row)]);
          queries_ = embed_texts(embedder_, prefixed(texts, prompt_prefix_));
        }
        return embedder_.similarity(features, queries_);
      },
      captions);
}

void RetrievalSheets::add(const std::vector<EvaluationSample>& samples, const BatchSimilarity& similarity_of, const Captions& captions) {
  const std::int64_t first = std::ssize(captions.by_image) - std::ssize(samples);
  if (first == 0) choose_captions(captions);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int64_t image = first + static_cast<std::int64_t>(i);
    const auto& own = captions.by_image[static_cast<std::size_t>(image)];
    if (!own.empty() && images_.choose(samples[i].index))
      by_image_.push_back({image,
                           {.text_to_image = false,
                            .query_image = to_image(samples[i].pixels),
                            .truth = own,
                            .query_name = samples[i].sample.key}});
  }
  if (by_text_.empty()) return;
  std::vector<std::int64_t> rows;
  for (const Query& query : by_text_) rows.push_back(query.row);
  const at::Tensor similarity = similarity_of(rows).to(at::kDouble);  // [B, queries]
  for (std::size_t q = 0; q < by_text_.size(); ++q) {
    Query& query = by_text_[q];
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      const bool right = captions.owner[static_cast<std::size_t>(query.row)] == first + row;
      if (right) {
        query.sheet.query_image = to_image(samples[i].pixels);
        query.sheet.query_name = samples[i].sample.key;
      }
      offer(query.sheet.items, similarity[row][static_cast<std::int64_t>(q)].item<double>(), kItems, [&] {
        return RetrievalSheet::Item{.image = to_image(samples[i].pixels), .text = samples[i].sample.key, .right = right};
      });
    }
  }
}

std::vector<RetrievalSheet> RetrievalSheets::finished(const RowSimilarity& similarity_of, const Captions& captions,
                                                      const metrics::RetrievalScores& scores) {
  std::vector<RetrievalSheet> out;
  for (Query& query : by_text_) query.sheet.rank = scores.text_to_image_rank[query.row].item<std::int64_t>();
  for (Query& query : by_image_) query.sheet.rank = scores.image_to_text_rank[query.row].item<std::int64_t>();
  keep_failures(by_text_);
  keep_failures(by_image_);
  for (Query& query : by_text_) out.push_back(std::move(query.sheet));
  for (Query& query : by_image_) {
    const at::Tensor similarity = similarity_of(query.row);
    const at::Tensor best = metrics::best_first(similarity, kItems);
    for (std::int64_t i = 0; i < best.size(0); ++i) {
      const auto text = best[i].item<std::int64_t>();
      const auto place = static_cast<std::size_t>(text);
      query.sheet.items.push_back({{}, captions.texts[place], similarity[text].item<double>(), captions.owner[place] == query.row});
    }
    out.push_back(std::move(query.sheet));
  }
  return out;
}

}  // namespace tessera
