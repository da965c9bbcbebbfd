// Reads tar shards: headers, sizes, names, and the samples made from the members.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <set>

#include "src/data/formats/byte_stream.h"
#include "src/data/sources/webdataset/shards.h"
#include "src/io/tar.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>

namespace tessera::fuzz {
namespace {

// Corrects the checksum in every block that looks like a header, because otherwise most changed headers would be rejected.
std::string with_tar_checksums(std::string_view input) {
  std::string out(input);
  for (std::size_t at = 0; at + io::kBlock <= out.size(); at += io::kBlock) {
    if (out.compare(at + 257, 5, "ustar") != 0) continue;
    unsigned sum = 8 * ' ';
    for (std::size_t i = 0; i < io::kBlock; ++i)
      if (i < 148 || i >= 156) sum += static_cast<std::uint8_t>(out[at + i]);
    std::snprintf(out.data() + at + 148, 8, "%06o", sum);
    out[at + 155] = ' ';
  }
  return out;
}

void check_index(const io::TarIndex& index, std::uint64_t size) {
  std::uint64_t place = 0;
  for (const io::TarMember& member : index.members) {
    require(member.offset >= place && member.offset % io::kBlock == 0, "tar: members overlap");
    require(member.offset <= size && member.size <= size - member.offset, "tar: a member lies outside the file");
    place = member.offset + member.size;
  }
  if (!index.problem.empty()) check_message(UserError(index.problem));
  require(index.problem_offset <= size, "tar: damage behind the end of the file");
}

void check_shard(const ShardIndex& index, const io::RandomAccessFile& file) {
  std::int64_t members = 0, counted = 0;
  for (const ShardSample& sample : index.samples) {
    require(sample.shard == 0 && !sample.key.empty() && !sample.members.empty(), "tar: an empty sample");
    std::set<std::string> names;
    for (const ShardMember& member : sample.members) {
      require(names.insert(member.name).second, "tar: a sample has a member twice");
      require(file.read(member.offset, member.size).size() == member.size, "tar: a member lies outside the file");
      ++members;
    }
  }
  for (const auto& [name, count] : index.names) counted += count;
  require(members == counted, "tar: members are counted wrongly");
  for (const std::string& problem : index.problems) check_message(UserError(problem));
}

// Serves bytes from memory in pieces of varying size.
class MemoryBytes : public ByteStream {
 public:
  explicit MemoryBytes(std::string_view bytes) : bytes_(bytes) {}
  std::size_t read(char* out, std::size_t size) override {
    piece_ = piece_ % 1000 + 37;
    const std::size_t count = bytes_.copy(out, std::min(size, piece_));
    bytes_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view bytes_;
  std::size_t piece_ = 0;
};

// `whole` is true if the archive is neither damaged nor compressed. Then reading the archive as a stream must return the members of the
// index. Otherwise the stream may throw an error, whose message is checked.
void check_stream(std::string_view bytes, const io::TarIndex& index, bool whole, const io::RandomAccessFile& file) {
  std::size_t count = 0;
  try {
    TarStream stream(decompress(std::make_unique<MemoryBytes>(bytes)));
    for (io::TarMember member; stream.next(member); ++count) {
      const std::string content = stream.content();
      if (!whole) continue;
      require(count < index.members.size(), "tar: a stream has more members than the index");
      const io::TarMember& same = index.members[count];
      require(member.name == same.name && member.size == same.size && member.offset == same.offset,
              "tar: a stream and the index disagree");
      require(content == file.read(same.offset, same.size), "tar: a stream gives other bytes");
    }
  } catch (const StreamError& error) {
    check_message(error);
    require(!whole, "tar: a stream refuses what the index takes");
  }
  require(!whole || count == index.members.size(), "tar: a stream has fewer members than the index");
}

}  // namespace

void fuzz_tar(std::string_view input) {
  static InputFile file;
  const bool repair = input.size() % io::kBlock == 0;  // the checksums of a truncated input are not corrected
  const std::string bytes = repair ? with_tar_checksums(input) : std::string(input);
  file.write(bytes);
  const io::RandomAccessFile opened(file.path());
  io::TarIndex index;
  bool is_tar = false;
  allowing<UserError>([&] {
    index = io::index_tar(file.path());
    is_tar = true;
    check_index(index, bytes.size());
    check_shard(index_shards({file.path()}), opened);
  });
  check_stream(bytes, index, is_tar && index.problem.empty() && !bytes.empty(), opened);
}

}  // namespace tessera::fuzz
