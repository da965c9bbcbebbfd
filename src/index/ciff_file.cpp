// The Common Index File Format (Lin et al. 2020, "Supporting Interoperability Between Open-Source Search Engines with the
// Common Index File Format") is a sequence of Protocol Buffers messages, each preceded by its length as a varint: a Header, the
// postings lists and the documents. These messages use only a small part of the wire format, so no library is needed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "src/base/printable.h"
#include "src/index/formats.h"
#include "src/io/mapped_file.h"
#include "src/io/wire_fields.h"
#include <tessera/base/error.h>
#include <tessera/io/atomic_file.h>

namespace tessera::index {
namespace {

using io::WireFields;

// ---- writing

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

void put_number(std::string& out, std::uint64_t field, std::int64_t value) {
  if (value == 0) return;  // proto3 does not write default values
  put_varint(out, field << 3 | WireFields::kVarint);
  put_varint(out, static_cast<std::uint64_t>(value));
}

void put_double(std::string& out, std::uint64_t field, double value) {
  if (value == 0) return;
  put_varint(out, field << 3 | WireFields::kFixed64);
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_bytes(std::string& out, std::uint64_t field, std::string_view bytes) {
  put_varint(out, field << 3 | WireFields::kBytes);
  put_varint(out, bytes.size());
  out += bytes;
}

std::string delimited(const std::string& message) {
  std::string out;
  put_varint(out, message.size());
  return out + message;
}

// ---- reading

/// Reads one message field by field. Fields that nobody asks for are skipped, as Protocol Buffers require of unknown ones.
class Message : public WireFields {
 public:
  Message(std::string_view content, const std::string& path) : WireFields(content), path_(path) {}

  bool next() {
    const bool more = WireFields::next();
    if (damaged) refuse();
    return more;
  }
  std::int64_t integer() const { return type == kVarint ? static_cast<std::int64_t>(scalar) : (refuse(), 0); }
  std::string_view text() const { return type == kBytes ? bytes : (refuse(), bytes); }
  /// Returns the next message of a file in which each message is preceded by its length.
  Message delimited() {
    const std::string_view message = WireFields::delimited();
    if (damaged) refuse();
    return {message, path_};
  }
  [[noreturn]] void refuse() const { user_error(path_, ": not a ciff file, damaged, or truncated"); }

 private:
  const std::string& path_;
};

/// Reads the fields 1, 2, ... of a message into these numbers, and skips all others.
void read_integers(Message message, std::initializer_list<std::int64_t*> numbers) {
  while (message.next())
    if (message.number >= 1 && message.number <= numbers.size()) *numbers.begin()[message.number - 1] = message.integer();
}

struct Posting {
  std::int64_t document = 0, frequency = 0;
};

struct PostingsList {
  std::string term;
  std::vector<Posting> postings;  // each document number is stored as the difference from the previous one
};

PostingsList read_list(Message message, const std::string& path) {
  PostingsList list;
  while (message.next()) {
    if (message.number == 1) list.term = message.text();
    if (message.number != 4) continue;
    Posting& posting = list.postings.emplace_back();
    read_integers({message.text(), path}, {&posting.document, &posting.frequency});
  }
  std::int64_t document = 0;
  for (Posting& posting : list.postings) {
    if (posting.document < 0 || posting.document > INT32_MAX) message.refuse();
    posting.document = document += posting.document;
  }
  return list;
}

struct Document {
  std::int64_t number = 0;
  std::string id;
};

Document read_document(Message message) {
  Document document;
  while (message.next()) {
    if (message.number == 1) document.number = message.integer();
    if (message.number == 2) document.id = message.text();
  }
  return document;
}

}  // namespace

SparseVectors read_ciff(const std::string& path, const SparseFileOptions& options) {
  const TokenNames& names = options.names;
  const io::MappedFile mapped(path);
  Message file(mapped.bytes(), path);
  if (file.at_end()) user_error(path, ": the file is empty, expected a ciff file");
  std::int64_t version = 0, lists = 0, documents = 0;
  read_integers(file.delimited(), {&version, &lists, &documents});
  if (version != 1) user_error(path, ": expected a ciff file of version 1, got version ", version);
  // Each document and each list takes at least one byte of the file. So a count above the file's size is invalid, and is rejected before
  // memory is allocated for it.
  const auto size = static_cast<std::int64_t>(mapped.bytes().size());
  if (documents < 0 || documents > size || lists < 0 || lists > size) file.refuse();
  std::vector<std::vector<TokenWeight>> rows(static_cast<std::size_t>(documents));
  SparseVectors vectors;
  vectors.vocab_size = names.size();
  for (std::int64_t i = 0; i < lists; ++i) {
    const PostingsList list = read_list(file.delimited(), path);
    const std::int32_t token = names.at(list.term, path);
    vectors.vocab_size = std::max(vectors.vocab_size, std::int64_t{token} + 1);
    for (const Posting& posting : list.postings) {
      if (posting.document >= documents)
        user_error(path, ": token ", printable(list.term, 60), " has the document ", posting.document, " of ",
                   documents);
      rows[static_cast<std::size_t>(posting.document)].push_back(
          {token, static_cast<float>(static_cast<double>(posting.frequency) / options.ciff_scale)});
    }
  }
  std::vector<std::string> ids(rows.size());
  for (std::int64_t i = 0; i < documents; ++i) {
    Document document = read_document(file.delimited());
    if (document.number < 0 || document.number >= documents) file.refuse();
    ids[static_cast<std::size_t>(document.number)] = std::move(document.id);
  }
  if (!file.at_end()) file.refuse();
  for (std::size_t r = 0; r < rows.size(); ++r)
    append_row(vectors, std::move(ids[r]), std::exchange(rows[r], {}), concat(path, ": document ", r));
  return vectors;
}

void write_ciff(const std::string& path, const SparseVectors& vectors, const SparseFileOptions& options) {
  const double scale = options.ciff_scale;
  struct Entry {
    std::int32_t document;
    std::int32_t frequency;
  };
  std::vector<std::int64_t> start(static_cast<std::size_t>(vectors.vocab_size) + 1, 0);
  for (const std::int32_t token : vectors.tokens) ++start[static_cast<std::size_t>(token) + 1];
  std::partial_sum(start.begin(), start.end(), start.begin());
  std::vector<std::int64_t> next = start, lengths(static_cast<std::size_t>(vectors.rows()), 0);
  std::vector<Entry> entries(vectors.tokens.size());
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    for (std::int64_t i = vectors.indptr[r]; i < vectors.indptr[r + 1]; ++i) {
      const double frequency = std::round(vectors.weights[i] * scale);
      if (frequency > INT32_MAX)
        user_error(path, ": the weight ", vectors.weights[i], " times ", scale, " is too large for a ciff file");
      entries[next[vectors.tokens[i]]++] = {static_cast<std::int32_t>(r),
                                            std::max(1, static_cast<std::int32_t>(frequency))};
      lengths[r] += std::max<std::int64_t>(1, static_cast<std::int64_t>(frequency));
    }
  }
  std::vector<std::pair<std::string, std::int32_t>> terms;
  for (std::int32_t token = 0; token < vectors.vocab_size; ++token)
    if (start[token + 1] > start[token]) terms.emplace_back(options.names.name(token), token);
  std::sort(terms.begin(), terms.end());

  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  io::AtomicFile file(path);
  Buffered out(file);
  std::string header;
  const auto terms_written = static_cast<std::int64_t>(terms.size());
  std::uint64_t field = 0;
  for (const std::int64_t number : {std::int64_t{1}, terms_written, vectors.rows(), terms_written, vectors.rows(), total})
    put_number(header, ++field, number);
  put_double(header, 7, vectors.rows() > 0 ? static_cast<double>(total) / static_cast<double>(vectors.rows()) : 0);
  put_bytes(header, 8, concat("Tessera: weights times ", scale));
  out.write(delimited(header));
  for (const auto& [name, token] : terms) {
    std::string list, postings;
    std::int64_t sum = 0;
    std::int32_t before = 0;
    for (std::int64_t i = start[token]; i < start[token + 1]; ++i) {
      std::string posting;
      put_number(posting, 1, entries[i].document - before);
      put_number(posting, 2, entries[i].frequency);
      put_bytes(postings, 4, posting);
      before = entries[i].document;
      sum += entries[i].frequency;
    }
    put_bytes(list, 1, name);
    put_number(list, 2, start[token + 1] - start[token]);
    put_number(list, 3, sum);
    out.write(delimited(list + postings));
  }
  for (std::int64_t r = 0; r < vectors.rows(); ++r) {
    std::string document;
    put_number(document, 1, r);
    put_bytes(document, 2, vectors.ids[r]);
    put_number(document, 3, lengths[r]);
    out.write(delimited(document));
  }
  out.flush();
  file.commit();
}

}  // namespace tessera::index
