#include <tessera/base/error.h>
#include <tessera/data/source.h>

namespace tessera {

Mixing Source::mixing() const {
  return {MixtureMode::concat, {{"", describe(), 0, size(), 1.0, this}}};
}

DataFile Source::data_file(std::int64_t index) const {
  throw std::out_of_range(concat("data file ", index, " of ", data_file_count()));
}

std::int64_t IndexedSource::captionless() const {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < size(); ++i) count += lacks_caption(i) ? 1 : 0;
  return count;
}

std::string describe_counts(const std::map<std::string, std::int64_t>& counts) {
  std::string out;
  for (const auto& [reason, count] : counts) out += concat(out.empty() ? "" : ", ", count, " ", reason);
  return out;
}

const IndexedSource& indexed(const Source& source) {
  const SourceKind kind = source.kind();
  if (const auto* found = std::get_if<const IndexedSource*>(&kind)) return **found;
  user_error(source.describe(),
             ": is a stream, which can only be read in order, but random access is needed here: use local, uncompressed "
             "tar files");
}

std::shared_ptr<const IndexedSource> indexed(const std::shared_ptr<const Source>& source) {
  return {source, &indexed(*source)};
}

}  // namespace tessera
