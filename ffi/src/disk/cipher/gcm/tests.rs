//! AES-256-GCM against NIST's own results: one for each relevant length of payload and bound data, from
//! `gcmEncryptExtIV256.rsp` of the Cryptographic Algorithm Validation Program.

use super::Gcm;
use ring::aead::{AES_256_GCM, UnboundKey};

struct Vector {
    key: &'static str,
    nonce: &'static str,
    payload: &'static str,
    aad: &'static str,
    sealed: &'static str,
    tag: &'static str,
}

const VECTORS: [Vector; 9] = [
    Vector {
        key: "b52c505a37d78eda5dd34f20c22540ea1b58963cf8e5bf8ffa85f9f2492505b4",
        nonce: "516c33929df5a3284ff463d7",
        payload: "",
        aad: "",
        sealed: "",
        tag: "bdc1ac884d332457a1d2664f168c76f0",
    },
    Vector {
        key: "78dc4e0aaf52d935c3c01eea57428f00ca1fd475f5da86a49c8dd73d68c8e223",
        nonce: "d79cf22d504cc793c3fb6c8a",
        payload: "",
        aad: "b96baa8c1c75a671bfb2d08d06be5f36",
        sealed: "",
        tag: "3e5d486aa2e30b22e040b85723a06e76",
    },
    Vector {
        key: "31bdadd96698c204aa9ce1448ea94ae1fb4a9a0b3c9d773b51bb1822666b8f22",
        nonce: "0d18e06c7c725ac9e362e1ce",
        payload: "2db5168e932556f8089a0622981d017d",
        aad: "",
        sealed: "fa4362189661d163fcd6a56d8bf0405a",
        tag: "d636ac1bbedd5cc3ee727dc2ab4a9489",
    },
    Vector {
        key: "83688deb4af8007f9b713b47cfa6c73e35ea7a3aa4ecdb414dded03bf7a0fd3a",
        nonce: "0b459724904e010a46901cf3",
        payload: "33d893a2114ce06fc15d55e454cf90c3",
        aad: "794a14ccd178c8ebfd1379dc704c5e208f9d8424",
        sealed: "cc66bee423e3fcd4c0865715e9586696",
        tag: "0fb291bd3dba94a1dfd8b286cfb97ac5",
    },
    Vector {
        key: "82c4f12eeec3b2d3d157b0f992d292b237478d2cecc1d5f161389b97f999057a",
        nonce: "7b40b20f5f397177990ef2d1",
        payload: "982a296ee1cd7086afad976945",
        aad: "",
        sealed: "ec8e05a0471d6b43a59ca5335f",
        tag: "113ddeafc62373cac2f5951bb9165249",
    },
    Vector {
        key: "37ccdba1d929d6436c16bba5b5ff34deec88ed7df3d15d0f4ddf80c0c731ee1f",
        nonce: "5c1b21c8998ed6299006d3f9",
        payload: "ad4260e3cdc76bcc10c7b2c06b80b3be948258e5ef20c508a81f51e96a518388",
        aad: "22ed235946235a85a45bc5fad7140bfa",
        sealed: "3b335f8b08d33ccdcad228a74700f1007542a4d1e7fc1ebe3f447fe71af29816",
        tag: "1fbf49cc46f458bf6e88f6370975e6d4",
    },
    Vector {
        key: "1fded32d5999de4a76e0f8082108823aef60417e1896cf4218a2fa90f632ec8a",
        nonce: "1f3afa4711e9474f32e70462",
        payload: "06b2c75853df9aeb17befd33cea81c630b0fc53667ff45199c629c8e15dce41e530aa792f796b8138eea\
            b2e86c7b7bee1d40b0",
        aad: "",
        sealed: "91fbd061ddc5a7fcc9513fcdfdc9c3a7c5d4d64cedf6a9c24ab8a77c36eefbf1c5dc00bc50121b96456c\
            8cd8b6ff1f8b3e480f",
        tag: "30096d340f3d5c42d82a6f475def23eb",
    },
    Vector {
        key: "463b412911767d57a0b33969e674ffe7845d313b88c6fe312f3d724be68e1fca",
        nonce: "611ce6f9a6880750de7da6cb",
        payload: "e7d1dcf668e2876861940e012fe52a98dacbd78ab63c08842cc9801ea581682ad54af0c34d0d7f6f59e8\
            ee0bf4900e0fd85042",
        aad: "0a682fbc6192e1b47a5e0868787ffdafe5a50cead3575849990cdd2ea9b3597749403efb4a56684f0c6b\
            de352d4aeec5",
        sealed: "8886e196010cb3849d9c1a182abe1eeab0a5f3ca423c3669a4a8703c0f146e8e956fb122e0d721b869d2\
            b6fcd4216d7d4d3758",
        tag: "2469cecd70fd98fec9264f71df1aee9a",
    },
    Vector {
        key: "148579a3cbca86d5520d66c0ec71ca5f7e41ba78e56dc6eebd566fed547fe691",
        nonce: "b08a5ea1927499c6ecbfd4e0",
        payload: "9d0b15fdf1bd595f91f8b3abc0f7dec927dfd4799935a1795d9ce00c9b879434420fe42c275a7cd7b39d\
            638fb81ca52b49dc41",
        aad: "e4f963f015ffbb99ee3349bbaf7e8e8e6c2a71c230a48f9d59860a29091d2747e01a5ca572347e247d25\
            f56ba7ae8e05cde2be3c97931292c02370208ecd097ef692687fecf2f419d3200162a6480a57dad408a0\
            dfeb492e2c5d",
        sealed: "2097e372950a5e9383c675e89eea1c314f999159f5611344b298cda45e62843716f215f82ee663919c64\
            002a5c198d7878fd3f",
        tag: "adbecdb0d5c2224d804d2886ff9a5760",
    },
];

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2).map(|pair| str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect()
}

#[test]
fn gcm_agrees_with_nist_vectors_both_ways() {
    for vector in VECTORS {
        let gcm = Gcm::new(UnboundKey::new(&AES_256_GCM, &bytes(vector.key)).expect("32 bytes"));
        let nonce = bytes(vector.nonce).try_into().expect("12 bytes");
        let (aad, tag) = (bytes(vector.aad), bytes(vector.tag).try_into().expect("16 bytes"));
        let mut payload = bytes(vector.payload);
        assert_eq!(gcm.seal(nonce, &aad, &mut payload), Some(tag), "{}", vector.key);
        assert_eq!(payload, bytes(vector.sealed), "{}", vector.key);
        assert!(gcm.open(nonce, &aad, &mut payload, tag), "{}", vector.key);
        assert_eq!(payload, bytes(vector.payload), "{}", vector.key);
    }
}

#[test]
fn refused_gcm_opening_leaves_only_zeros() {
    let vector = &VECTORS[VECTORS.len() - 1];
    let gcm = Gcm::new(UnboundKey::new(&AES_256_GCM, &bytes(vector.key)).expect("32 bytes"));
    let nonce = bytes(vector.nonce).try_into().expect("12 bytes");
    let tag = bytes(vector.tag).try_into().expect("16 bytes");
    let mut payload = bytes(vector.sealed);
    assert!(!gcm.open(nonce, b"other", &mut payload, tag));
    assert!(payload.iter().all(|byte| *byte == 0));
}
