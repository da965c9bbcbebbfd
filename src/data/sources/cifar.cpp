#include <algorithm>
#include <filesystem>

#include "src/data/formats/data_files.h"
#include "src/data/sources/benchmarks.h"
#include "src/io/tar.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = 32, kPlane = kSide * kSide;

/// The file layout of CIFAR-10 or CIFAR-100. A record consists of label bytes, of which the last is used, and three color planes.
struct CifarFormat {
  const char* folder;  // the folder inside the archive
  std::uint64_t label_bytes;
  std::int64_t classes;
  const char* names_file;
  std::vector<std::string> train, test;

  std::uint64_t record() const { return label_bytes + 3 * static_cast<std::uint64_t>(kPlane); }
};

const std::vector<CifarFormat>& cifar_formats() {
  static const std::vector<CifarFormat> formats = {
      {"cifar-10-batches-bin", 1, 10, "batches.meta.txt",
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}, {"test_batch.bin"}},
      {"cifar-100-binary", 2, 100, "fine_label_names.txt", {"train.bin"}, {"test.bin"}}};
  return formats;
}

class Cifar : public IndexedSource {
 public:
  explicit Cifar(const CifarSettings& settings) : settings_(settings) {
    const fs::path folder = find_folder();
    find_names(folder);
    for (const std::string& name : settings.split == "train" ? format_->train : format_->test) open_file(folder / name);
    if (first_.back() == 0) user_error(folder.string(), ": the files of split ", settings.split, " are empty");
  }

  std::int64_t size() const override { return first_.back(); }
  std::vector<std::string> class_names() const override { return names_; }
  std::string describe() const override {
    return concat("cifar", format_->classes, " ", settings_.path, " (", settings_.split, "), ", with_thousands(size()), " images");
  }

  std::int64_t data_file_count() const override { return std::ssize(paths_); }
  DataFile data_file(std::int64_t index) const override { return data_file_at(paths_.at(static_cast<std::size_t>(index)).string()); }

  Sample get(std::int64_t index) const override {
    const auto number = static_cast<std::size_t>(std::ranges::upper_bound(first_, index) - first_.begin() - 1);
    const std::int64_t place = index - first_[number];
    Sample sample;
    sample.key = concat(paths_.at(number).stem().string(), "/", place);
    return read_keyed(sample.key, [&] {
      const std::string bytes = files_[number]->read(static_cast<std::uint64_t>(place) * format_->record(), format_->record());
      if (bytes.size() < format_->record())
        throw SampleError("truncated", concat("sample ", sample.key, ": the file has become shorter"));
      sample.label = static_cast<std::uint8_t>(bytes[format_->label_bytes - 1]);
      if (sample.label >= format_->classes)
        throw SampleError("bad_label", concat("sample ", sample.key, ": its class index is ", sample.label, ", but there are ",
                                              format_->classes, " classes"));
      sample.image = {kSide, kSide, std::vector<std::uint8_t>(3 * kPlane)};
      for (std::size_t i = 0; i < sample.image.pixels.size(); ++i)
        sample.image.pixels[i] = static_cast<std::uint8_t>(bytes[format_->label_bytes + i % 3 * kPlane + i / 3]);
      for (const std::string& text : settings_.templates)
        sample.captions.push_back(fill_template(text, names_[static_cast<std::size_t>(sample.label)]));
      return std::move(sample);
    });
  }

 private:
  fs::path find_folder() {
    if (settings_.path.empty()) user_error("cifar10: path is not set; expected a folder with data_batch_1.bin");
    std::error_code ignored;
    config::require(settings_.path);
    if (!fs::is_directory(settings_.path.name, ignored)) user_error(settings_.path, ": expected a folder, got a file");
    for (const CifarFormat& format : cifar_formats())
      for (const fs::path& folder : {fs::path(settings_.path.name), fs::path(settings_.path.name) / format.folder})
        for (const std::string& name : {format.train[0], format.test[0]})
          if (fs::exists(folder / name, ignored)) {
            format_ = &format;
            return folder;
          }
    user_error(settings_.path,
               ": holds neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100); expected the archives' \"binary version\"");
  }

  void find_names(const fs::path& folder) {
    std::error_code ignored;
    const fs::path file = folder / format_->names_file;
    if (fs::exists(file, ignored))
      names_ = read_class_names(file.string());
    else if (format_->classes == 10)
      names_ = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
    else
      user_error(file.string(), ": no such file; it names the classes");
    if (std::ssize(names_) != format_->classes)
      user_error(file.string(), ": expected ", format_->classes, " class names, got ", names_.size());
    for (std::string& name : names_) std::ranges::replace(name, '_', ' ');
  }

  void open_file(const fs::path& path) {
    paths_.push_back(path);
    files_.push_back(std::make_unique<io::RandomAccessFile>(path.string()));
    const std::uint64_t size = files_.back()->size();
    if (size % format_->record() != 0)
      user_error(path.string(), ": has ", size, " bytes, which are not whole records of ", format_->record(),
                 ": cut off, or not a CIFAR-", format_->classes, " file");
    first_.push_back(first_.back() + static_cast<std::int64_t>(size / format_->record()));
  }

  const CifarSettings settings_;
  const CifarFormat* format_ = nullptr;
  std::vector<std::string> names_;
  std::vector<fs::path> paths_;
  std::vector<std::unique_ptr<io::RandomAccessFile>> files_;
  std::vector<std::int64_t> first_ = {0};  // first sample of each file, then the total
};

}  // namespace

std::shared_ptr<IndexedSource> make_cifar(const CifarSettings& settings) {
  return std::make_shared<Cifar>(settings);
}

}  // namespace tessera
