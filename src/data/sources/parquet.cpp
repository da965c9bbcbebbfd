#include "src/data/sources/tables.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <future>
#include <list>
#include <mutex>
#include <span>
#include <system_error>
#include <unordered_map>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/data/formats/json_values.h"
#include "src/data/formats/column_file.h"
#include "src/base/in_threads.h"
#include "src/data/formats/row_filter.h"
#include "src/data/formats/data_files.h"
#include "src/data/formats/published_tables.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = RowSettings::Names;

constexpr std::size_t kOpeningThreads = 8;
constexpr std::int64_t kMostOpenGroups = 64;
constexpr std::size_t kTextGroups = 4;  // number of cached groups that hold only text columns, for reading captions in order

/// Caches the most recently used row groups. Thread-safe: one thread reads a group while others that need it wait.
class GroupCache {
 public:
  using Group = std::shared_ptr<const ColumnGroup>;

  /// `most` is the number of groups to keep.
  explicit GroupCache(std::size_t most) : most_(most) {}

  /// Returns group `number`, and calls `read` if it is not cached. If `read` throws because the group is damaged, the error is cached. If
  /// the disk (std::system_error) or the store (UserError) fails, the next call reads again.
  Group get(std::int64_t number, const std::function<Group()>& read) {
    std::promise<Group> promise;
    std::unique_lock lock(mutex_);
    if (const auto found = std::ranges::find(entries_, number, &Entry::first); found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      const std::shared_future<Group> group = found->second;
      lock.unlock();
      return group.get();
    }
    entries_.emplace_front(number, promise.get_future().share());
    if (entries_.size() > most_) entries_.pop_back();
    lock.unlock();
    try {
      Group group = read();
      promise.set_value(group);
      return group;
    } catch (const std::exception& error) {
      promise.set_exception(std::current_exception());
      lock.lock();
      const bool may_pass = dynamic_cast<const std::system_error*>(&error) != nullptr || dynamic_cast<const UserError*>(&error) != nullptr;
      if (may_pass) entries_.remove_if([&](const Entry& entry) { return entry.first == number; });
      throw;
    }
  }

  bool holds(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(entries_, number, &Entry::first) != entries_.end();
  }

 private:
  using Entry = std::pair<std::int64_t, std::shared_future<Group>>;  // a group's number, and the group

  const std::size_t most_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
};

/// Returns the texts of a list in a file that save_to_disk wrote. Each item is a text, or an object with a text `member`.
std::vector<std::string> saved_texts(const fs::path& path, const char* name, const char* member) {
  const Json json = Json::parse(io::read_file(path.string()), nullptr, false);
  if (!json.is_object()) user_error(path.string(), ": expected a JSON object, as save_to_disk writes it");
  std::vector<std::string> out;
  for (const Json& each : json.value(name, Json::array())) {
    const Json text = each.is_object() ? each.value(member, Json()) : each;
    if (text.is_string()) out.push_back(text.get<std::string>());
  }
  return out;
}

bool is_folder(const std::string& item) {
  std::error_code ignored;
  if (!remote::is_remote(item)) return fs::is_directory(local_path(item), ignored);
  const remote::Address address = remote::parse_address(item);
  return address.has_folders() && (address.key.empty() || address.key.ends_with('/'));
}

/// Returns the settings with the files that `path` names, and with the configuration that they belong to. A folder written by save_to_disk
/// stands for the files that its state.json lists.
ParquetSettings with_files(ParquetSettings settings) {
  const PathList& paths = settings.path;
  const TablePart part{settings.configuration, settings.split};
  const bool chosen = !part.configuration.empty() || !part.split.empty();
  Names out;
  std::error_code ignored;
  for (const std::string& item : paths.items) {
    const auto add = [&](const char* ending) {
      std::ranges::move(expand_paths({{item}, paths.origin, paths.searched}, ending, FilePlaces::stores), std::back_inserter(out));
    };
    const auto add_published = [&](const std::string& folder) {
      const PublishedTables found = published_tables(folder, part);
      if (found.files.empty())
        user_error(folder, ": holds no .parquet files", part.configuration.empty() ? "" : " of the configuration ",
                   printable(part.configuration),
                   part.split.empty() ? "" : part.configuration.empty() ? " of the split " : " and the split ", printable(part.split));
      std::ranges::copy(found.files, std::back_inserter(out));
      settings.configuration = found.configuration;
    };
    if (chosen && !is_folder(item))
      user_error(item, ": `configuration` and `split` choose files of a folder: name the folder, or leave these settings out");
    if (remote::is_remote(item)) {
      if (chosen || (is_folder(item) && lists_configurations(item)))
        add_published(item);
      else
        add(".parquet");
      continue;
    }
    const fs::path folder = local_path(item);
    const auto holds = [&](const char* ending) {
      return std::ranges::any_of(fs::directory_iterator(folder, ignored), [&](const auto& entry) { return entry.path().extension() == ending; });
    };
    if (const fs::path state = folder / "state.json"; fs::exists(state, ignored)) {
      const std::vector<std::string> names = saved_texts(state, "_data_files", "filename");
      if (names.empty()) user_error(state.string(), ": lists no files (_data_files)");
      for (const std::string& name : names) out.push_back((folder / name).string());
      continue;
    }
    if (const fs::path all = folder / "dataset_dict.json"; fs::exists(all, ignored)) {
      const std::vector<std::string> splits = saved_texts(all, "splits", "");
      user_error(folder.string(), ": holds the splits ", join_names(splits), ": name one of them, as in path: ",
                 (folder / (splits.empty() ? "train" : splits[0])).string());
    }
    const bool parquet = holds(".parquet"), arrow = !parquet && holds(".arrow");
    if (chosen || (is_folder(item) && (lists_configurations(folder.string()) || (!parquet && !arrow))))
      add_published(folder.string());
    else
      add(arrow ? ".arrow" : ".parquet");
  }
  settings.path.items = out.empty() ? expand_paths(paths, ".parquet", FilePlaces::stores) : std::move(out);
  return settings;
}

/// Columns that are read together.
struct ColumnSet {
  Names names;
  // By the name in the settings (COLUMN.MEMBER.MEMBER...): the column's place in `names`, and the members below it.
  std::map<std::string, std::pair<std::size_t, Names>> fields;

  std::size_t add(const std::string& column) {
    const auto found = std::ranges::find(names, column);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    names.push_back(column);
    return names.size() - 1;
  }
  void add(const std::string& name, const ColumnPath& path) { fields[name] = {add(path.column), path.below}; }
};

/// A column that holds files or names them. Members are those of the column's structure; an empty name stands for the column itself.
struct FileColumn {
  std::size_t place = 0;
  std::string column;
  std::optional<std::string> bytes_member, name_member;  // nullopt: the column has no bytes, or no names
};

struct ParquetRow : Row {
  ParquetRow(const ColumnGroup& of, std::int64_t number, const ColumnSet& columns) : group(of), row(number), set(columns) {}

  Json value(const std::string& name) const override {
    const auto found = set.fields.find(name);
    return found == set.fields.end() ? Json() : value_below(group.json(found->second.first, row), found->second.second);
  }
  std::optional<std::string> text(const std::string& name) const override {
    return set.fields.contains(name) ? std::optional(json_text(value(name))) : std::nullopt;
  }
  std::optional<std::string> file(const std::string& name, const char* missing) const override {
    const auto found = files->find(name);
    if (found == files->end()) return std::nullopt;
    const FileColumn& column = found->second;
    const auto bytes = column.bytes_member ? group.bytes(column.place, row, *column.bytes_member) : std::nullopt;
    if (bytes) return std::string(*bytes);
    const auto path = column.name_member ? group.bytes(column.place, row, *column.name_member) : std::nullopt;
    return path && !path->empty() ? std::optional(read_sample_file(remote::joined(folder, std::string(*path)), missing)) : std::nullopt;
  }
  const Json* side() const override { return &side_fields; }

  const ColumnGroup& group;
  const std::int64_t row;
  const ColumnSet& set;
  const std::map<std::string, FileColumn>* files = nullptr;  // by the name in the settings
  std::string folder;  // of the files that the row names
  Json side_fields = Json::object();
};

bool is_list_of_numbers(const Column& column) {
  return column.kind == Column::Kind::list && (column.members[0].kind == Column::Kind::number || is_list_of_numbers(column.members[0]));
}

bool holds_binary(const Column& column) {
  return column.kind == Column::Kind::binary || std::ranges::any_of(column.members, holds_binary);
}

class ParquetSource : public IndexedSource, public FieldSource {
 public:
  explicit ParquetSource(const ParquetSettings& settings)
      : settings_(with_files(settings)), paths_(settings_.path.items), files_(paths_.size()) {
    if (settings.root && !remote::is_remote(settings.root->name)) config::require(*settings.root);
    for_each_in_threads(paths_.size(), kOpeningThreads, [&](std::size_t i) { files_[i] = open_columns(paths_[i]); });
    list_groups();
    choose_columns();
    check_columns();
    cache_ = std::make_unique<GroupCache>(static_cast<std::size_t>(open_groups_ + 2));
    if (std::ranges::any_of(paths_, remote::is_remote)) plan_fetching();
  }

  std::int64_t size() const override { return starts_.back(); }
  std::vector<std::string> class_names() const override { return mapper_->classes(); }
  std::int64_t background_class() const override { return settings_.background_class; }
  double depth_units() const override { return settings_.depth_units; }
  std::vector<std::int64_t> group_starts() const override { return starts_; }
  std::int64_t open_groups() const override { return open_groups_; }
  std::int64_t read_ahead() const override { return read_ahead_; }
  void will_read(std::int64_t index) const override {
    const Place place = place_of(index);
    if (!remote::is_remote(paths_[place.file]) || cache_->holds(static_cast<std::int64_t>(place.group))) return;
    for (const remote::Piece& piece : pieces_of(place.group)) remote::store()->fetch_ahead(piece);
  }
  std::int64_t data_file_count() const override { return std::ssize(paths_); }
  DataFile data_file(std::int64_t index) const override { return data_file_at(paths_.at(static_cast<std::size_t>(index))); }

  std::string describe() const override {
    return concat("parquet ", first_and_more(paths_, "files"), ", ", with_thousands(size()), " samples");
  }

  std::string name_of(std::int64_t index) const override {
    const Place place = place_of(index);
    return concat("row ", place.row_of_file, " of ", paths_[place.file]);
  }

  std::string describe_fields(const std::vector<std::string>& needed) const override {
    const std::string where = describe_rows(settings_, class_names().size(), needed);
    return concat("Its columns are ", column_names(files_[0]->columns), where.empty() ? "" : "; ", where);
  }

  // Reads only the columns that the filter uses.
  std::vector<FilterVerdict> judge(const RowFilter& filter) const override {
    ColumnSet set;
    for (const std::string& name : filter.fields()) set.add(name, require_column(name, "filter"));
    std::vector<FilterVerdict> out(static_cast<std::size_t>(size()), FilterVerdict{FilterVerdict::unreadable});
    for_each_group(set.names, "the filter", [&](std::size_t number, const ColumnGroup& group) {
      const auto first = out.begin() + starts_[number];
      for (std::int64_t row = 0; row < group.rows(); ++row)
        first[row] = filter.judge([&](std::size_t field) { return ParquetRow(group, row, set).value(filter.fields()[field]); });
    });
    return out;
  }

  // Rows have the same image if they name the same file or, where they name none, if their keys are equal. If they hold bytes, these must
  // be equal, too, because datasets' writers drop the folders of names.
  std::vector<std::uint64_t> image_ids() const override {
    std::call_once(ids_found_, [this] { find_image_ids(); });
    return ids_;
  }

  Sample get(std::int64_t index) const override {
    const Place place = place_of(index);
    const auto group = read_group(place, *cache_, columns_.names);
    ParquetRow row(*group, place.row, columns_);
    Sample sample;
    sample.key = row.text(key_).value_or("");
    if (sample.key.empty()) sample.key = file_and_row(place);
    return read_keyed(sample.key, [&] {
      for (const std::string& name : kept_) row.side_fields[name] = row.value(name);
      row.files = &file_columns_;
      row.folder = folder_of(place.file);
      mapper_->read(row, sample);
      if (sample.encoded.empty())
        sample.no_image = concat("sample ", printable(sample.key), " has no image: its column ", printable(image_.column), " is null");
      return std::move(sample);
    });
  }

  std::vector<std::string> captions(std::int64_t index) const override {
    const Place place = place_of(index);
    Sample sample;
    sample.key = file_and_row(place);
    mapper_->read_texts(ParquetRow(*read_group(place, text_cache_, text_columns_.names), place.row, text_columns_), sample);
    return std::move(sample.captions);
  }

 private:
  struct Group {
    std::size_t file = 0;
    std::int64_t number = 0, first_of_file = 0;  // indices, in the file, of the row group and of its first row
  };
  struct Place {
    std::size_t group = 0, file = 0;
    std::int64_t row = 0, row_of_file = 0;  // indices of the row in its group and in its file
  };

  // Reads columns of all groups in threads, and calls take(number of the group, its columns). A damaged group is left out, with a warning
  // that says what it cannot be read for.
  template <class Take>
  void for_each_group(const Names& names, const char* purpose, const Take& take,
                      const std::function<bool(std::size_t)>& is_wanted = {}) const {
    for_each_in_threads(groups_.size(), kOpeningThreads, [&](std::size_t number) {
      if (is_wanted && !is_wanted(number)) return;
      const Group& group = groups_[number];
      try {
        take(number, *files_[group.file]->read(group.number, names));
      } catch (const std::system_error& error) {
        user_error(paths_[group.file], ": ", printable(error.what()));
      } catch (const UserError&) {
        throw;
      } catch (const std::runtime_error& error) {
        log::warning(paths_[group.file], ": row group ", group.number, " cannot be read for ", purpose, ": ", printable(error.what()));
      }
    });
  }

  void find_image_ids() const {
    const std::string member = image_.name_member.value_or(""), column = image_.column + (member.empty() ? "" : "." + member);
    const bool named = image_.name_member && find_column(columns(), column);
    const bool keyed = !key_.empty() && image_.bytes_member;
    if (!named && !keyed) return;
    ColumnSet set;
    const std::size_t name_place = named ? set.add(column) : 0;
    if (keyed) set.add(key_, *find_column(columns(), key_));
    std::vector<std::uint64_t> ids(static_cast<std::size_t>(size()));
    for_each_group(set.names, "the names of its images", [&](std::size_t number, const ColumnGroup& group) {
      FileIds files;
      for (std::int64_t row = 0; row < group.rows(); ++row) {
        std::uint64_t& id = ids[static_cast<std::size_t>(starts_[number] + row)];
        const std::string name = named ? std::string(group.bytes(name_place, row, member).value_or("")) : std::string();
        const std::string key = name.empty() ? ParquetRow(group, row, set).text(key_).value_or("") : std::string();
        if (!name.empty())
          id = files.of(remote::joined(folder_of(groups_[number].file), name));
        else if (!key.empty())
          id = fingerprint(fs::path(key).lexically_normal().native());
      }
    });
    std::unordered_map<std::uint64_t, std::int64_t> rows_of;
    for (const std::uint64_t id : ids) ++rows_of[id];
    std::ranges::replace_if(ids, [&](std::uint64_t id) { return id == 0 || rows_of.at(id) == 1; }, 0);
    if (image_.bytes_member) add_bytes(ids);
    ids_ = std::move(ids);
  }

  // Makes ids differ if the bytes of images do.
  void add_bytes(std::vector<std::uint64_t>& ids) const {
    if (const auto shared = std::ssize(ids) - std::ranges::count(ids, 0U); shared > 0)
      log::info("parquet ", paths_[0], ": reading the images of ", with_thousands(shared),
                " rows that share names or keys, to find equal ones");
    const auto ids_of = [&](std::size_t number) {
      return std::span(ids).subspan(static_cast<std::size_t>(starts_[number]), static_cast<std::size_t>(starts_[number + 1] - starts_[number]));
    };
    const auto add = [&](std::size_t number, const ColumnGroup& group) {
      for (std::int64_t row = 0; row < group.rows(); ++row)
        if (std::uint64_t& id = ids_of(number)[static_cast<std::size_t>(row)]; id != 0)
          if (const auto bytes = group.bytes(0, row, *image_.bytes_member)) id = fingerprint(*bytes, id);
    };
    for_each_group({image_.column}, "equal images", add,
                   [&](std::size_t number) { return std::ranges::any_of(ids_of(number), [](std::uint64_t id) { return id != 0; }); });
  }

  std::string folder_of(std::size_t file) const {
    return settings_.root ? settings_.root->name : remote::folder_of(paths_[file]);
  }

  // The samples that are announced come from the groups ahead and from as many more as are open, because these take turns. The cache must
  // have room for all, so that no piece is deleted before it is read.
  void plan_fetching() {
    std::int64_t largest = 1;
    for (const auto& file : files_)
      for (const std::int64_t bytes : file->group_bytes) largest = std::max(largest, bytes);
    const auto groups = std::ssize(groups_), fit = static_cast<std::int64_t>(remote::store()->limit()) / largest;
    read_ahead_ = std::max<std::int64_t>(1, std::min(remote::store()->ahead(), fit - open_groups_) * size() / groups);
    pieces_.resize(groups_.size());
  }

  // Returns the pieces of a row group's file that its samples need. A damaged file has none; the error is left to get().
  std::vector<remote::Piece> pieces_of(std::size_t number) const {
    const std::lock_guard lock(pieces_mutex_);
    std::optional<std::vector<remote::Piece>>& known = pieces_[number];
    if (known) return *known;
    known.emplace();
    const Group& group = groups_[number];
    try {
      for (const ByteRange& range : files_[group.file]->pieces(group.number, columns_.names))
        known->emplace_back(paths_[group.file], static_cast<std::uint64_t>(range.offset), static_cast<std::uint64_t>(range.size));
    } catch (const std::runtime_error&) {
      known->clear();
    }
    return *known;
  }

  void list_groups() {
    std::int64_t largest = 1;
    starts_ = {0};
    for (std::size_t file = 0; file < files_.size(); ++file) {
      const std::vector<std::int64_t>& rows = files_[file]->group_rows;
      std::int64_t first = 0;
      for (std::size_t i = 0; i < rows.size(); first += rows[i++]) {
        if (rows[i] == 0) continue;
        groups_.push_back({file, static_cast<std::int64_t>(i), first});
        starts_.push_back(starts_.back() + rows[i]);
        largest = std::max(largest, files_[file]->group_bytes[i]);
      }
      if (!files_[file]->problem.empty())
        log::warning(paths_[file], ": is cut off or damaged after its first ", with_thousands(first), " rows, which are used (",
                     printable(files_[file]->problem), ")");
    }
    if (groups_.empty()) user_error(first_and_more(paths_, "files"), ": hold no rows");
    // The number of open groups is a power of two. So if the number of ranks is also a power of two, and not larger than the number of open
    // groups, each rank reads groups of its own.
    const std::int64_t fit = std::clamp<std::int64_t>((settings_.memory_mb << 20) / largest, 1, kMostOpenGroups);
    open_groups_ = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(fit)));
    if (largest > settings_.memory_mb << 20)
      log::warning("parquet ", paths_[0], ": a row group takes ", format_bytes(static_cast<double>(largest)),
                   ", more than memory_mb: write files with smaller row groups (row_group_size=1000)");
  }

  const std::vector<Column>& columns() const { return files_[0]->columns; }

  ColumnPath require_column(const std::string& name, const char* setting) const {
    if (auto path = find_column(columns(), name)) return *std::move(path);
    user_error(paths_[0], ": has no column ", printable(name), " (", setting, "); its columns are ", column_names(columns()));
  }

  // Returns the first of these names that is a column; empty if none is.
  std::string first_column(const Names& names) const {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return find_column(columns(), name).has_value(); });
    return found == names.end() ? std::string() : *found;
  }

  void choose_columns() {
    RowSettings chosen = settings_;
    const std::string image = first_column(settings_.image_keys);
    if (image.empty())
      user_error(paths_[0], ": no column has images: its columns are ", column_names(columns()), ", the image is looked for in ",
                 join_names(settings_.image_keys), " (image_keys)");
    for (auto [names, setting] : {std::pair(&chosen.image_keys, "image_keys"), std::pair(&chosen.mask_keys, "mask_keys"),
                                  std::pair(&chosen.depth_keys, "depth_keys"), std::pair(&chosen.region_keys, "region_keys")})
      if (const std::string name = first_column(*names); !name.empty()) file_columns_[name] = file_column(name, setting);
    image_ = file_columns_.at(image);
    for (Names* names : {&chosen.label_keys, &chosen.summary_keys, &chosen.object_keys}) {
      const std::string name = first_column(*names);
      *names = name.empty() ? Names() : Names{name};
      if (!name.empty()) columns_.add(name, *find_column(columns(), name));
    }
    for (const std::string& name : settings_.caption_keys) add_text(name, find_column(columns(), name));
    for (const std::string& name : settings_.text_fields) add_text(name, require_column(name, "text_fields"));
    key_ = first_column({"key", "__key__"});
    if (!key_.empty()) columns_.add(key_, *find_column(columns(), key_));
    for (const Column& column : columns())
      if (!settings_.side_fields && column.name != image_.column && !holds_binary(column) && !is_list_of_numbers(column))
        kept_.push_back(column.name);
    if (settings_.side_fields) kept_ = *settings_.side_fields;
    for (const std::string& name : kept_) columns_.add(name, require_column(name, "side_fields"));
    const bool own_classes = !settings_.classes && !chosen.label_keys.empty() && columns_.fields[chosen.label_keys[0]].second.empty();
    mapper_ = std::make_unique<const RowMapper>(chosen, RowMapper::Format{.name = "parquet " + paths_[0], .each_once = true},
                                                own_classes ? published_classes(chosen.label_keys[0]) : Names());
  }

  void add_text(const std::string& name, const std::optional<ColumnPath>& path) {
    if (!path) return;
    columns_.add(name, *path);
    text_columns_.add(name, *path);
  }

  FileColumn file_column(const std::string& name, const char* setting) {
    const ColumnPath path = *find_column(columns(), name);
    const auto& members = std::ranges::find(columns(), path.column, &Column::name)->members;
    const bool is_pair = path.kind == Column::Kind::structure && path.below.empty() &&
                         std::ranges::find(members, "bytes", &Column::name) != members.end();
    if (path.below.size() > 1 || (!is_pair && path.kind != Column::Kind::binary && path.kind != Column::Kind::text))
      user_error(paths_[0], ": column ", printable(name), " (", setting, ") is of type ", printable(path.type),
                 "; expected an image's bytes, {bytes, path} or a file name");
    const std::string member = path.below.empty() ? "" : path.below[0];
    FileColumn out{columns_.add(path.column), path.column};
    if (path.kind != Column::Kind::text) out.bytes_member = is_pair ? "bytes" : member;
    if (path.kind != Column::Kind::binary) out.name_member = is_pair ? "path" : member;
    return out;
  }

  // Reads the class names of a column from the metadata that Hugging Face's datasets write, or else from the data set's README.md.
  Names published_classes(const std::string& column) const {
    const Json json = Json::parse(files_[0]->metadata("huggingface"), nullptr, false);
    const Json found = value_below(json.is_object() ? json : Json::object(), {"info", "features", column, "names"});
    Names names;
    for (const Json& each : found)
      if (each.is_string()) names.push_back(each.get<std::string>());
    if (found.is_array() && names.size() == found.size() && !names.empty()) return names;
    return published_class_names(paths_[0], settings_.configuration, column);
  }

  // Throws UserError unless all files have the columns that are read from the first file.
  void check_columns() const {
    for (std::size_t i = 1; i < files_.size(); ++i)
      for (const std::string& name : columns_.names) {
        const auto here = find_column(files_[i]->columns, name);
        if (!here || (name == image_.column && here->kind != find_column(columns(), name)->kind))
          user_error(paths_[i], here ? ": its column " : ": has no column ", printable(name),
                     here ? concat(" is of type ", printable(here->type)) : "", ", unlike ", paths_[0]);
      }
  }

  Place place_of(std::int64_t index) const {
    const auto group = static_cast<std::size_t>(std::ranges::upper_bound(starts_, index) - starts_.begin() - 1);
    const Group& of = groups_.at(group);
    return {group, of.file, index - starts_[group], of.first_of_file + index - starts_[group]};
  }

  std::string file_and_row(const Place& place) const {
    return concat(remote::file_name(paths_[place.file]), ":", place.row_of_file);
  }

  std::shared_ptr<const ColumnGroup> read_group(const Place& place, GroupCache& cache, const Names& names) const {
    const Group& group = groups_[place.group];
    try {
      return cache.get(static_cast<std::int64_t>(place.group), [&] { return files_[group.file]->read(group.number, names); });
    } catch (const std::system_error& error) {
      user_error(paths_[group.file], ": ", printable(error.what()));
    } catch (const UserError&) {
      throw;  // of the store
    } catch (const std::runtime_error& error) {
      const std::string text = concat(paths_[group.file], ": row group ", group.number, " cannot be read: ", printable(error.what()));
      throw SampleError("bad_row_group", text, file_and_row(place));
    }
  }

  const ParquetSettings settings_;
  const std::vector<std::string> paths_;
  std::vector<std::shared_ptr<const ColumnFile>> files_;
  std::vector<Group> groups_;
  std::vector<std::int64_t> starts_;  // first sample of each group, then the number of samples
  std::int64_t open_groups_ = 1;

  ColumnSet columns_, text_columns_;  // all columns that samples need; the columns of their texts
  std::map<std::string, FileColumn> file_columns_;  // by the name in the settings
  FileColumn image_;
  std::string key_;  // the column of keys; empty if there is none
  Names kept_;       // the columns of the side fields
  std::unique_ptr<const RowMapper> mapper_;
  std::unique_ptr<GroupCache> cache_;
  mutable GroupCache text_cache_{kTextGroups};
  std::int64_t read_ahead_ = 0;
  mutable std::mutex pieces_mutex_;
  mutable std::vector<std::optional<std::vector<remote::Piece>>> pieces_;  // of remote row groups, as far as they were announced
  mutable std::once_flag ids_found_;
  mutable std::vector<std::uint64_t> ids_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_parquet(const ParquetSettings& settings) {
  return std::make_shared<ParquetSource>(settings);
}

}  // namespace tessera
