#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <regex>
#include <set>
#include <unordered_map>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/index/index_writer.h"
#include "src/io/file_lock.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

/// Locks the index in a folder against other writers while the result exists.
std::unique_ptr<io::FileLock> lock_folder(const std::string& folder) {
  std::string holder;
  auto lock = io::FileLock::take(folder + "/lock", holder);
  if (!lock) user_error(folder, ": another process is changing this index; try again when it is done");
  return lock;
}

/// Returns whether next_file() makes this name, or an AtomicFile of an index does while it is unfinished. All other files are the user's.
bool is_index_file(const std::string& name) {
  static const std::regex names(R"((segment-\d{6,}|vocabulary-\d{6,}\.txt)(\.tmp\.\d+)?|manifest\.json\.tmp\.\d+)");
  return std::regex_match(name, names);
}

/// Removes the index files that the manifest does not name. Earlier states of the index and killed writers leave such files.
void remove_unnamed_files(const std::string& folder, const Manifest& manifest) {
  std::set<std::string> named = {manifest.vocabulary};
  for (const ManifestSegment& segment : manifest.segments) named.insert(segment.record.file);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (is_index_file(name) && !named.contains(name)) std::filesystem::remove(entry.path(), error);
  }
}

/// Changes the state of the index by writing the manifest. Then removes the files that the manifest no longer names.
void change_to(const std::string& folder, const Manifest& manifest) {
  write_manifest(folder, manifest);
  remove_unnamed_files(folder, manifest);
}

std::string next_file(Manifest& manifest, const char* kind) {
  std::string number = std::to_string(manifest.next_number++);
  number.insert(0, number.size() < 6 ? 6 - number.size() : 0, '0');
  return concat(kind, "-", number);
}

/// Returns a number greater than every number in the names of existing files.
std::int64_t next_number_of(const std::string& folder) {
  std::int64_t next = 1;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t dash = name.find('-');
    if (dash != std::string::npos) next = std::max<std::int64_t>(next, std::atoll(name.c_str() + dash + 1) + 1);
  }
  return next;
}

/// Converts the documents' weights to impacts, reusing the memory of the vectors.
QuantizedDocuments quantize(SparseVectors vectors, const Quantization& quantization, std::int64_t& cut_weights) {
  QuantizedDocuments out;
  const double largest_impact = static_cast<double>(quantization.largest_impact());
  const double scale = largest_impact / quantization.largest_weight;
  out.impacts.resize(vectors.weights.size());
  std::int64_t kept = 0;
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    for (std::int64_t i = vectors.indptr[r]; i < vectors.indptr[r + 1]; ++i) {
      const double steps = std::round(vectors.weights[i] * scale);
      if (vectors.weights[i] > quantization.largest_weight) ++cut_weights;
      if (steps < 1) continue;
      vectors.tokens[kept] = vectors.tokens[i];
      out.impacts[kept++] = static_cast<std::uint16_t>(std::min(steps, largest_impact));
    }
    out.indptr.push_back(kept);
  }
  vectors.tokens.resize(static_cast<std::size_t>(kept));
  out.impacts.resize(static_cast<std::size_t>(kept));
  out.tokens = std::move(vectors.tokens);
  out.ids = std::move(vectors.ids);
  return out;
}

/// Returns the row of each id. Throws UserError if two rows share an id.
std::unordered_map<std::string_view, std::int64_t> rows_by_id(const std::vector<std::string>& ids) {
  std::unordered_map<std::string_view, std::int64_t> rows;
  rows.reserve(ids.size());
  for (std::size_t r = 0; r < ids.size(); ++r) {
    const auto [other, fresh] = rows.emplace(ids[r], static_cast<std::int64_t>(r));
    if (!fresh)
      user_error("the id ", printable(ids[r], 100), " belongs to two documents, rows ", other->second, " and ", r);
  }
  return rows;
}

void add_segment(const std::string& folder, Manifest& manifest, const QuantizedDocuments& documents, int threads) {
  if (documents.rows() == 0) return;
  const std::string file = next_file(manifest, "segment");
  manifest.segments.push_back({write_segment(folder, file, documents, manifest.layout, threads), {}});
}

double find_largest(const SparseVectors& vectors) {
  const auto largest = std::max_element(vectors.weights.begin(), vectors.weights.end());
  return largest == vectors.weights.end() ? 1 : *largest;
}

void check_settings(const BuildSettings& settings) {
  if (settings.impact_bits != 8 && settings.impact_bits != 16)
    user_error("impacts of ", settings.impact_bits, " bits: expected 8 or 16");
  if (settings.window < 64 || settings.window > kLargestWindow || settings.window % 64 != 0)
    user_error("a window of ", settings.window, " documents: expected a multiple of 64 up to ", kLargestWindow);
  if (settings.largest_weight < 0 || !std::isfinite(settings.largest_weight))
    user_error("a largest weight of ", settings.largest_weight, ": expected a number above 0");
}

/// Removes documents from existing segments. `rows` maps the ids of these documents to rows. Calls `found` with the row of each document
/// that it removes.
template <class Visit>
std::int64_t remove_from(const std::vector<OpenSegment>& segments, Manifest& manifest,
                         const std::unordered_map<std::string_view, std::int64_t>& rows, Visit&& found) {
  std::int64_t removed = 0;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    for (std::int64_t d = 0; d < segments[s].segment->documents(); ++d) {
      const auto row = rows.find(segments[s].segment->id(d));
      if (row == rows.end() || !manifest.segments[s].remove(d)) continue;
      found(row->second);
      ++removed;
    }
  }
  return removed;
}

}  // namespace

Change build_index(const std::string& folder, SparseVectors documents, const BuildSettings& settings) {
  check_settings(settings);
  rows_by_id(documents.ids);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) user_error(folder, ": cannot create the folder: ", error.message());
  const auto lock = lock_folder(folder);
  Manifest manifest;
  if (has_manifest(folder)) {
    if (!settings.overwrite) user_error(folder, ": there is already an index; --overwrite replaces it");
    manifest.next_number = next_number_of(folder);
  }
  Change change{documents.rows()};
  if (settings.unit_length) scale_to_unit_length(documents);
  manifest.quantization = {settings.impact_bits,
                           settings.largest_weight > 0 ? settings.largest_weight : find_largest(documents),
                           settings.unit_length};
  manifest.layout = {documents.vocab_size, settings.window, settings.impact_bits};
  if (!settings.names.are_numbers()) {
    const std::string lines = settings.names.lines();
    manifest.vocabulary = next_file(manifest, "vocabulary") + ".txt";
    manifest.vocabulary_fingerprint = fingerprint(lines);
    io::write_file(folder + "/" + manifest.vocabulary, lines);
  }
  add_segment(folder, manifest, quantize(std::move(documents), manifest.quantization, change.cut_weights),
              settings.threads);
  change_to(folder, manifest);
  return change;
}

Change add_documents(const std::string& folder, SparseVectors documents, bool replace, int threads) {
  require_manifest(folder);  // so that a folder without an index gets no lock file
  const auto lock = lock_folder(folder);
  Manifest manifest = read_manifest(folder);
  if (documents.vocab_size > manifest.layout.vocab_size)
    user_error("the documents' vocabulary of ", documents.vocab_size, " is larger than the index's, ",
               manifest.layout.vocab_size);
  const auto rows = rows_by_id(documents.ids);
  Change change{documents.rows()};
  change.replaced =
      remove_from(open_segments(folder, manifest, threads, SegmentParts::kIds), manifest, rows, [&](std::int64_t row) {
        if (!replace)
          user_error("there is already a document ", printable(documents.ids[row], 100),
                     "; --replace replaces it by the new one");
      });
  if (manifest.quantization.unit_length) scale_to_unit_length(documents);
  add_segment(folder, manifest, quantize(std::move(documents), manifest.quantization, change.cut_weights), threads);
  change_to(folder, manifest);
  return change;
}

Change remove_documents(const std::string& folder, std::span<const std::string> ids, bool missing_ok, int threads) {
  require_manifest(folder);
  const auto lock = lock_folder(folder);
  Manifest manifest = read_manifest(folder);
  std::unordered_map<std::string_view, std::int64_t> rows;
  for (std::size_t i = 0; i < ids.size(); ++i) rows.emplace(ids[i], static_cast<std::int64_t>(i));
  std::vector<bool> found(ids.size(), false);
  Change change;
  change.documents = remove_from(open_segments(folder, manifest, threads, SegmentParts::kIds), manifest, rows,
                                 [&](std::int64_t row) { found[static_cast<std::size_t>(row)] = true; });
  for (const auto& [id, row] : rows)
    if (!missing_ok && !found[static_cast<std::size_t>(row)])
      user_error("there is no document ", printable(id, 100), " in the index; nothing was removed");
  change_to(folder, manifest);
  return change;
}

Change compact_index(const std::string& folder, int threads) {
  require_manifest(folder);
  const auto lock = lock_folder(folder);
  Manifest manifest = read_manifest(folder);
  const QuantizedDocuments documents = stored_documents(open_segments(folder, manifest, threads), manifest.layout);
  manifest.segments.clear();
  add_segment(folder, manifest, documents, threads);
  change_to(folder, manifest);
  return {documents.rows()};
}

}  // namespace tessera::index
