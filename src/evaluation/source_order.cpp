#include <variant>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/data/sources/one_per_image.h"
#include "src/evaluation/source_order.h"
#include <tessera/base/error.h>

namespace tessera {

using Choice = config::Value<config::ModuleSettings>;

std::shared_ptr<const Source> open_source(const SourceOrder& order, const EvaluationContext& context) {
  if (order.options) return read_options(*order.options).images;
  const std::shared_ptr<const Source>& fallback = order.train ? context.train_source : context.source;
  if (!order.choice && fallback == nullptr)
    user_error(order.key, " is not set, and there is no data of a run to fall back on: set it, for example to {name: shapes, split: test}");
  const std::shared_ptr<const Source> source = order.choice ? sources().make(*order.choice, order.key) : fallback;
  if (order.joined == Joined::none) return source;
  if (order.joined == Joined::same_bytes && std::holds_alternative<const StreamSource*>(source->kind()))
    user_error(order.key.substr(0, order.key.rfind('.')), ".group_equal_images: ", source->describe(),
               ": is a stream, which can only be read in order, but images are compared with all others: leave the "
               "setting out, or use local, uncompressed tar files");
  return one_sample_per_image(source, order.joined == Joined::same_bytes);
}

std::string to_text(const SourceOrder& order) {
  nlohmann::json json = {{"key", order.key}, {"train", order.train}, {"joined", static_cast<int>(order.joined)}};
  if (order.choice) json["choice"] = config::to_json(Choice::dump(*order.choice));
  if (order.options) json["options"] = config::to_json(config::dump(*order.options));
  return dump_utf8(json);
}

SourceOrder source_order_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  SourceOrder out{.key = json.at("key"), .choice = {}, .train = json.at("train"), .joined = static_cast<Joined>(json.at("joined").get<int>())};
  if (const auto choice = json.find("choice"); choice != json.end())
    out.choice = Choice::read(config::from_json(*choice, out.key), out.key, {});
  if (const auto options = json.find("options"); options != json.end())
    out.options = config::read<OptionSettings>(config::from_json(*options, out.key));
  return out;
}

}  // namespace tessera
