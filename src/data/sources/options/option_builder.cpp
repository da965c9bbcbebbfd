#include "src/data/sources/options/option_builder.h"

#include <algorithm>

#include "src/data/image/encode.h"
#include "src/data/image/orientation.h"
#include "src/data/image/sample_picture.h"
#include "src/data/sources/find_picture.h"
#include "src/data/sources/listed_pictures.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/shipped.h>

namespace tessera {
namespace {

/// Clips the box of a part to the image.
Box within(const Image& image, const Box& part) {
  const auto [top, left, height, width] = part;
  const std::int64_t first_row = std::clamp<std::int64_t>(top, 0, image.height);
  const std::int64_t first_column = std::clamp<std::int64_t>(left, 0, image.width);
  return {first_row, first_column, std::clamp<std::int64_t>(top + height, 0, image.height) - first_row,
          std::clamp<std::int64_t>(left + width, 0, image.width) - first_column};
}

/// The images of a benchmark. Some are parts of larger images.
class OptionPictures final : public ListedPictures {
 public:
  OptionPictures(PictureList list, std::vector<std::optional<Box>> parts)
      : ListedPictures(std::move(list)), parts_(std::move(parts)) {}

  Sample get(std::int64_t index) const override {
    Sample sample = ListedPictures::get(index);
    const std::optional<Box>& part = parts_.at(static_cast<std::size_t>(index));
    if (!part) return sample;
    ImageNotes notes;
    Image whole = take_image(sample, {}, &notes);
    const Box box = within(whole, *part);
    if (box[2] <= 0 || box[3] <= 0)
      throw SampleError("bad_box",
                        concat("sample ", sample.key, ": the part at row ", (*part)[0], ", column ", (*part)[1],
                               " is outside the image"),
                        sample.key);
    sample.image = crop(whole, box);
    if (notes.orientation == 1) return sample;
    sample.encoded =
        with_orientation(encode_png(sample.image), notes.orientation);  // so that exif_rotation turns the part
    sample.image = {};
    return sample;
  }

 private:
  std::vector<std::optional<Box>> parts_;
};

}  // namespace

std::int64_t OptionBuilder::picture(const std::string& name, const std::optional<Box>& part) {
  std::string key = name;
  if (part) key += concat("\n", (*part)[0], " ", (*part)[1], " ", (*part)[2], " ", (*part)[3]);
  const auto [found, is_new] = numbers_.emplace(key, std::ssize(files_));
  if (is_new) {
    files_.push_back(find_picture(settings_.images, name));
    parts_.push_back(part);
  }
  return found->second;
}

void OptionBuilder::take_form(const OptionItem& item, const std::string& place) {
  const std::size_t pictures = item.pictures.size(), texts = item.texts.size();
  if (set_.form == OptionForm::paraphrase) {
    if (pictures == 1 && texts == 3) return;
    user_error(place, ": has ", pictures, " images and ", texts, " texts; expected one and three");
  }
  const bool pairs = pictures == 2 && texts == 2;
  if (!pairs && !(pictures == 1 && texts > 1) && !(texts == 1 && pictures > 1))
    user_error(place, ": has ", pictures, " images and ", texts,
               " texts; expected one image with several texts, several images with one text, or two of each");
  const OptionForm form = pairs ? OptionForm::pairs : OptionForm::choice;
  if (!set_.items.empty() && form != set_.form)
    user_error(place, pairs ? ": has two images and two texts" : ": has one right option",
               ", unlike the items before; expected items of one form");
  set_.form = form;
}

void OptionBuilder::add(OptionItem item, const std::string& place) {
  for (std::string& text : item.texts) text = std::string(strip(text));
  if (std::any_of(item.texts.begin(), item.texts.end(), [](const std::string& text) { return text.empty(); }))
    return skip("no_text");
  take_form(item, place);
  set_.items.push_back(std::move(item));
}

const std::string& OptionBuilder::lexicon() const {
  if (settings_.lexicon.empty())
    user_error("options: lexicon is not set; layout ", settings_.layout,
               " needs a file of nouns and adjectives, one per line (", config::shipped_folder(),
               "/lexicons/nouns_adjectives_small.txt has some)");
  config::require(settings_.lexicon);
  return settings_.lexicon;
}

OptionSet OptionBuilder::finished(const std::vector<std::string>& files) && {
  if (set_.items.empty()) user_error(files.at(0), ": holds no items of layout ", settings_.layout);
  const std::string described =
      concat(settings_.layout, " ", files[0], files.size() > 1 ? concat(" and ", files.size() - 1, " more files") : "");
  PictureList list{described, settings_.images};
  for (std::string& file : files_) list.pictures.emplace_back().name = std::move(file);
  list.tables = files;
  set_.pictures = std::make_shared<OptionPictures>(std::move(list), std::move(parts_));
  set_.described = concat(described, ", ", with_thousands(std::ssize(set_.items)), " items");
  return std::move(set_);
}

}  // namespace tessera
