#include "src/models/convnext.h"
#include "src/models/groupvit.h"
#include "src/models/mlp_head.h"
#include "src/models/modified_resnet.h"
#include "src/models/projections.h"
#include "src/models/readouts/attention_pool_2d.h"
#include "src/models/readouts/attentional_pool.h"
#include "src/models/readouts/fdt.h"
#include "src/models/readouts/groups.h"
#include "src/models/readouts/linear_bottleneck.h"
#include "src/models/readouts/map_pool.h"
#include "src/models/readouts/pooling.h"
#include "src/models/readouts/sparo.h"
#include "src/models/text_group_encoder.h"
#include "src/models/text_transformer.h"
#include "src/models/timm_resnet.h"
#include "src/models/token_projection.h"
#include "src/models/vit.h"
#include <tessera/models/registry.h>

namespace tessera {
namespace {

template <class Module, class Settings>
void add_encoder(EncoderRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help, [](const Settings& s) { return std::make_shared<Module>(s); });
}

template <class Module, class Settings>
void add_readout(ReadOutRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help, [](const Settings& s, const ReadOutContext& context) {
    return std::make_shared<Module>(s, context);
  });
}

template <class Module, class Settings>
void add_projection(ProjectionRegistry& list, const char* name, const char* help) {
  list.add<Settings>(name, help, [](const Settings& s, const ProjectionContext& context) {
    return std::make_shared<Module>(s, context);
  });
}

}  // namespace

EncoderRegistry& encoders() {
  static EncoderRegistry registry = [] {
    EncoderRegistry list("encoder");
    add_encoder<Vit, VitSettings>(list, "vit", "vision transformer");
    add_encoder<ModifiedResnet, ModifiedResnetSettings>(list, "modified_resnet",
                                                        "CLIP's ResNet; read-out attention_pool_2d");
    add_encoder<ConvNext, ConvNextSettings>(list, "convnext", "ConvNeXt and ConvNeXt V2 as in timm; read-out gap");
    add_encoder<TimmResnet, TimmResnetSettings>(list, "timm_resnet", "ResNet and ResNeXt as in timm; read-out gap");
    add_encoder<TextTransformer, TextTransformerSettings>(list, "text_transformer",
                                                          "text transformer, causal or bidirectional");
    add_encoder<GroupVit, GroupVitSettings>(list, "groupvit",
                                            "vision transformer that groups its patches; read-out groups");
    add_encoder<TextGroupEncoder, TextGroupEncoderSettings>(list, "text_group_encoder",
                                                            "text transformer that groups its tokens; read-out groups");
    return list;
  }();
  return registry;
}

ReadOutRegistry& readouts() {
  static ReadOutRegistry registry = [] {
    ReadOutRegistry list("read-out");
    add_readout<ClsReadOut, PoolingSettings>(list, "cls", "the class token (texts: position 0)");
    add_readout<EosReadOut, EosSettings>(list, "eos", "the end-of-text token");
    add_readout<GapReadOut, PositionsSettings>(list, "gap", "the mean over patches or real tokens");
    add_readout<MaxReadOut, PositionsSettings>(list, "max", "the maximum over patches or real tokens");
    add_readout<ClsMeanReadOut, config::NoSettings>(list, "cls_mean", "the class token concatenated with the mean over patches");
    add_readout<MapPool, MapPoolSettings>(list, "map", "SigLIP's attention pooling: one learned query, then an MLP");
    add_readout<AttentionalPool, AttentionalPoolSettings>(list, "attentional_pool", "CoCa's attentional pooler");
    add_readout<AttentionPool2d, AttentionPool2dSettings>(list, "attention_pool_2d",
                                                          "attention pooling of modified_resnet");
    add_readout<Sparo, SparoSettings>(list, "sparo", "separately attended slots (projection none)");
    add_readout<LinearBottleneck, LinearBottleneckSettings>(list, "linear_bottleneck",
                                                            "a pooled vector through a narrow linear map");
    add_readout<Fdt, FdtSettings>(list, "fdt", "a sparse combination of codes from a codebook that both towers share");
    add_readout<GroupsReadOut, GroupsReadOutSettings>(list, "groups", "the mean of projected groups (projection none)");
    add_readout<TokenProjection, TokenProjectionSettings>(
        list, "token_projection", "STAIR's sparse vector over the text tower's vocabulary (projection none)");
    list.add<config::NoSettings>(
        "none", "no vector; for objectives that read the tokens",
        [](const config::NoSettings&, const ReadOutContext& context) { return std::make_shared<NoReadOut>(context); });
    return list;
  }();
  return registry;
}

ProjectionRegistry& projections() {
  static ProjectionRegistry registry = [] {
    ProjectionRegistry list("projection");
    add_projection<LinearProjection, LinearProjectionSettings>(list, "linear", "one matrix (CLIP), with or without bias");
    add_projection<Adaptor, AdaptorSettings>(list, "adaptor", "SPARC's head");
    add_projection<MlpProjection, MlpProjectionSettings>(list, "mlp", "GroupViT's head");
    list.add<config::NoSettings>("none", "the read-out's vector is the embedding",
                                 [](const config::NoSettings&, const ProjectionContext& context) {
                                   return std::make_shared<NoProjection>(context);
                                 });
    return list;
  }();
  return registry;
}

}  // namespace tessera
