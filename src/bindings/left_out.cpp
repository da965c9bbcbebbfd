// Empty versions of functions of GDAL, OpenEXR and JBIG-KIT, only for the wheel's libtessera.so. OpenCV's imgcodecs, linked from Debian's archive,
// calls these functions when it lists its codecs, which happens for the first image that is encoded. The wheel leaves out GDAL, GDCM,
// OpenEXR and OpenJPEG, because Tessera writes only PNG and JPEG with OpenCV.
extern "C" {

void GDALAllRegister() {}

// Replaces OpenEXR's constructor Chromaticities::Chromaticities(V2f, V2f, V2f, V2f), which is called for a member of the decoder. The
// numbers that OpenEXR's constructor sets are never read.
void no_chromaticities() __asm__("_ZN7Imf_3_114ChromaticitiesC1ERKN9Imath_3_14Vec2IfEES5_S5_S5_");
void no_chromaticities() {}

// libtiff calls these functions of JBIG-KIT, which is under the GPL and therefore not in the wheel, for TIFF files with JBIG compression.
// libtiff reports such a file as damaged, because jbg_dec_in fails.
#pragma GCC visibility push(default)
void jbg_dec_init(void*) {}
int jbg_dec_in(void*, unsigned char*, unsigned long, unsigned long*) { return 0x40; }
unsigned char* jbg_dec_getimage(const void*, int) { return nullptr; }
unsigned long jbg_dec_getsize(const void*) { return 0; }
void jbg_dec_free(void*) {}
void jbg_enc_init(void*, unsigned long, unsigned long, int, unsigned char**, void (*)(unsigned char*, unsigned long, void*), void*) {}
void jbg_enc_out(void*) {}
void jbg_enc_free(void*) {}
int jbg_newlen(unsigned char*, unsigned long) { return 0; }
const char* jbg_strerror(int) { return "this build of Tessera does not read JBIG"; }
#pragma GCC visibility pop

}  // extern "C"
