// tar shards: headers, sizes, names, and the samples that the members make.
#include <cstdint>
#include <cstdio>
#include <set>

#include "src/data/shard_index.h"
#include "src/io/tar_format.h"
#include "tests/fuzz/target.h"
#include <tessera/base/error.h>
#include <tessera/io/tar.h>

namespace tessera::fuzz {
namespace {

// Few changed bytes survive a header's checksum: it is put right in every block that looks like a header.
std::string with_checksums(std::string_view input) {
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
  std::int64_t parts = 0, counted = 0;
  for (const ShardSample& sample : index.samples) {
    require(sample.shard == 0 && !sample.key.empty() && !sample.parts.empty(), "tar: an empty sample");
    std::set<std::string> names;
    for (const ShardPart& part : sample.parts) {
      require(names.insert(part.name).second, "tar: a sample has a part twice");
      require(file.read(part.offset, part.size).size() == part.size, "tar: a part lies outside the file");
      ++parts;
    }
  }
  for (const auto& [name, count] : index.parts) counted += count;
  require(parts == counted, "tar: parts are counted wrongly");
  for (const std::string& problem : index.problems) check_message(UserError(problem));
}

}  // namespace

void fuzz_tar(std::string_view input) {
  static InputFile file;
  const bool repair = input.size() % io::kBlock == 0;  // a cut one keeps its checksums as they are
  file.write(repair ? with_checksums(input) : std::string(input));
  try {
    check_index(io::index_tar(file.path()), input.size());
    check_shard(index_shards({file.path()}), io::RandomAccessFile(file.path()));
  } catch (const UserError& error) {
    check_message(error);
  }
}

}  // namespace tessera::fuzz
