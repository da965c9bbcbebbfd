#pragma once

#include <tessera/models/registry.h>

namespace tessera {

/// Adds an encoder that is made from its settings.
template <class Module, class Settings>
void add_encoder(EncoderRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help, [](const Settings& s) { return std::make_shared<Module>(s); });
}

/// Adds a read-out that is made from its settings and the context.
template <class Module, class Settings>
void add_readout(ReadOutRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help, [](const Settings& s, const ReadOutContext& context) { return std::make_shared<Module>(s, context); });
}

// Each of these functions adds the module of its name; add_poolings() adds cls, eos, gap, max and cls_mean,
// add_stored_encoders() stored_images and stored_texts.
void add_convnext(EncoderRegistry& list);
void add_stored_encoders(EncoderRegistry& list);
void add_fastvit(EncoderRegistry& list);
void add_timm_resnet(EncoderRegistry& list);
void add_attention_pool_2d(ReadOutRegistry& list);
void add_attentional_pool(ReadOutRegistry& list);
void add_groups(ReadOutRegistry& list);
void add_linear_bottleneck(ReadOutRegistry& list);
void add_map(ReadOutRegistry& list);
void add_none(ReadOutRegistry& list);
void add_poolings(ReadOutRegistry& list);
void add_sparo(ReadOutRegistry& list);

}  // namespace tessera
