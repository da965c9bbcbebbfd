// Empty versions of functions of GDAL and OpenEXR, only for the wheel's libtessera.so. OpenCV's imgcodecs, linked from Debian's archive,
// calls these functions when it lists its codecs, which happens for the first image that is encoded. The wheel leaves out GDAL, GDCM,
// OpenEXR and OpenJPEG, because Tessera writes only PNG and JPEG with OpenCV.
extern "C" {

void GDALAllRegister() {}

// Replaces OpenEXR's constructor Chromaticities::Chromaticities(V2f, V2f, V2f, V2f), which is called for a member of the decoder. The
// numbers that OpenEXR's constructor sets are never read.
void no_chromaticities() __asm__("_ZN7Imf_3_114ChromaticitiesC1ERKN9Imath_3_14Vec2IfEES5_S5_S5_");
void no_chromaticities() {}

}  // extern "C"
