#include "src/data/formats/concepts.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

/// Calls visit(word) for each word of the text.
template <class Visit>
void for_each_concept_word(std::string_view text, const Visit& visit) {
  constexpr std::string_view kEnds = " \t\n\r,.;:?!`", kSpace = kEnds.substr(0, 4);
  for (std::size_t i = text.find_first_not_of(kSpace); i < text.size(); i = text.find_first_not_of(kSpace, i)) {
    const bool alone = kEnds.find(text[i]) != std::string_view::npos;
    const std::size_t end = alone ? i + 1 : std::min(text.size(), text.find_first_of(kEnds, i));
    visit(text.substr(i, end - i));
    i = end;
  }
}

}  // namespace

ConceptMatcher::ConceptMatcher(const std::vector<std::string>& entries, const std::string& origin) : entry_of_node_{-1} {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::uint32_t node = 0;
    for_each_concept_word(entries[i], [&](std::string_view word) {
      auto found = words_.find(word);
      if (found == words_.end()) found = words_.emplace(word, static_cast<std::uint32_t>(words_.size())).first;
      const auto [next, added] = edges_.emplace(edge(node, found->second), static_cast<std::uint32_t>(entry_of_node_.size()));
      if (added) entry_of_node_.push_back(-1);
      node = next->second;
    });
    if (node == 0) user_error(origin, ": entry ", i + 1, " has no words");
    std::int32_t& entry = entry_of_node_[node];
    if (entry >= 0)
      user_error(origin, ": entry ", i + 1, ", ", printable(entries[i], 60), ", has the words of entry ", entry + 1, ": leave one of them out");
    entry = static_cast<std::int32_t>(i);
  }
}

std::vector<std::int32_t> ConceptMatcher::find(const std::vector<std::string>& texts) const {
  std::vector<std::int32_t> found;
  std::vector<std::uint32_t> begun;  // nodes of the entries that may continue
  for (const std::string& text : texts) {
    begun.clear();
    for_each_concept_word(text, [&](std::string_view word) {
      const auto known = words_.find(word);
      if (known == words_.end()) return begun.clear();
      begun.push_back(0);
      std::size_t kept = 0;
      for (const std::uint32_t node : begun) {
        const auto next = edges_.find(edge(node, known->second));
        if (next == edges_.end()) continue;
        begun[kept++] = next->second;
        if (const std::int32_t entry = entry_of_node_[next->second]; entry >= 0) found.push_back(entry);
      }
      begun.resize(kept);
    });
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

double ConceptCounts::keep_probability(const std::vector<std::int32_t>& found, double threshold) const {
  double dropped = 1;
  for (const std::int32_t entry : found)
    dropped *= 1 - std::min(1.0, threshold / static_cast<double>(std::max<std::int64_t>(1, counts[static_cast<std::size_t>(entry)])));
  return 1 - dropped;
}

std::vector<std::string> read_concepts(const std::string& path) {
  const std::string bytes = io::read_file(path);
  std::vector<std::string> out;
  if (path.ends_with(".json")) {
    const auto list = nlohmann::json::parse(bytes, nullptr, false);
    if (!list.is_array() || !std::ranges::all_of(list, [](const auto& each) { return each.is_string(); }))
      user_error(path, ": expected a JSON list of texts");
    for (const auto& each : list) out.push_back(each.get<std::string>());
  } else {
    for (const std::string& line : split_lines(bytes))
      if (!strip(line).empty()) out.emplace_back(strip(line));
  }
  if (out.empty()) user_error(path, ": has no entries");
  for (std::string& entry : out) std::ranges::replace_if(entry, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return out;
}

void write_concept_counts(const std::string& path, const ConceptCounts& counts) {
  io::AtomicFile file(path);
  std::string lines;
  for (std::size_t i = 0; i < counts.entries.size(); ++i) lines += concat(counts.counts[i], "\t", counts.entries[i], "\n");
  file.write(lines);
  file.commit();
}

ConceptCounts read_concept_counts(const std::string& path) {
  ConceptCounts out;
  const std::vector<std::string> lines = split_lines(io::read_file(path));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t tab = lines[i].find('\t');
    std::int64_t count = -1;
    const auto read = std::from_chars(lines[i].data(), lines[i].data() + std::min(tab, lines[i].size()), count);
    if (tab == std::string::npos || read.ec != std::errc() || read.ptr != lines[i].data() + tab || count < 0)
      user_error(path, ":", i + 1, ": expected a count, a tab and an entry, got ", printable(lines[i], 60),
                 "; tessera-data concepts writes such files");
    out.counts.push_back(count);
    out.entries.push_back(lines[i].substr(tab + 1));
  }
  if (out.entries.empty()) user_error(path, ": has no entries; tessera-data concepts writes such files");
  return out;
}

}  // namespace tessera
