use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use zeroize::ZeroizeOnDrop;

const DIGITS: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

fn expected() -> [u8; KEY_BYTES] {
    core::array::from_fn(|i| i as u8)
}

fn from_file(content: &[u8], mode: u32) -> Result<Key, KeyError> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("key");
    std::fs::write(&path, content).expect("written");
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its own file");
    Key::from_file(&path)
}

#[test]
fn key_file_of_digits_or_raw_bytes_is_read() {
    let digits = [DIGITS.to_owned(), format!("{DIGITS}\n"), format!(" {}\r\n", DIGITS.to_lowercase())];
    for text in digits {
        assert_eq!(from_file(text.as_bytes(), 0o600).expect("a key").bytes(), &expected(), "{text:?}");
    }
    assert_eq!(from_file(&expected(), 0o400).expect("a key").bytes(), &expected());
}

#[test]
fn key_file_of_other_contents_is_refused_by_its_fault() {
    let refused: [(&[u8], &str); 15] = [
        (b"", "holds nothing"),
        (b"\n", "holds nothing"),
        (b"a", "too few digits"),
        (&DIGITS.as_bytes()[..62], "too few digits"),
        (&DIGITS.as_bytes()[..63], "too few digits"),
        (&[b'0'; 65], "too many digits"),
        (&[b'0'; 1000], "too many digits"),
        (&[0xFF; 33], "other than hexadecimal digits"),
        (&DIGITS.as_bytes()[..32], "32 bytes of text"),
        (&[0; 32], "one byte 32 times"),
        (&[0xFF; 32], "one byte 32 times"),
        (&[b'a'; 32], "one byte 32 times"),
        (&[b'0'; 64], "one byte 32 times"),
        (&[b'7'; 64], "one byte 32 times"),
        (b"+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1", "other than hexadecimal"),
    ];
    for (content, found) in refused {
        let message = from_file(content, 0o600).expect_err("no key").to_string();
        assert!(message.contains(found) && message.contains("openssl rand -hex 32"), "{message}");
    }
}

#[test]
fn key_file_open_to_others_is_refused_with_the_remedy() {
    for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o777] {
        let error = from_file(DIGITS.as_bytes(), mode).expect_err("open to others");
        assert!(matches!(error, KeyError::Mode { mode: found, .. } if found == mode), "{error}");
        assert!(
            error.to_string().contains(&format!("{mode:04o}")) && error.to_string().contains("chmod 600")
        );
    }
}

#[test]
fn key_path_of_no_file_is_refused_without_waiting() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(matches!(Key::from_file(dir.path()), Err(KeyError::NotAFile { .. })));
    assert!(matches!(Key::from_file(dir.path().join("none")), Err(KeyError::Os { .. })));
    let pipe = dir.path().join("pipe");
    let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).expect("no zero");
    // SAFETY: `name` is a string that ends with a zero and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(Key::from_file(&pipe), Err(KeyError::NotAFile { .. })));
}

/// This process's environment is shared by all tests: the variable is set in another process, which runs
/// this test again.
#[test]
fn key_variable_of_digits_is_read() {
    const VARIABLE: &str = "KVSTRATA_TEST_KEY";
    if std::env::var_os(VARIABLE).is_some() {
        assert_eq!(Key::from_variable(VARIABLE).expect("a key").bytes(), &expected());
        return;
    }
    let unset = Key::from_variable(VARIABLE).expect_err("not set");
    assert!(matches!(unset, KeyError::NotSet { .. }) && unset.to_string().contains(VARIABLE));
    for (value, good) in [(DIGITS, true), ("00", false)] {
        let output = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "disk::cipher::key::tests::key_variable_of_digits_is_read"])
            .env(VARIABLE, value)
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), good, "{said}");
        assert!(said.contains("running 1 test"), "{said}");
    }
}

#[test]
fn key_errors_show_no_key() {
    let key = from_file(&expected(), 0o600).expect("a key");
    assert_eq!(format!("{key:?}"), "Key { .. }");
    let secret = "c0ffee".repeat(10);
    let error = from_file(secret.as_bytes(), 0o600).expect_err("too few");
    assert!(!format!("{error} {error:?}").contains("c0ffee"));
}

/// That memory is wiped when it is freed cannot be observed, but the type can be checked for it. A clone
/// is not another copy.
#[test]
fn key_has_one_place_and_is_wiped() {
    fn wiped<T: ZeroizeOnDrop>(_: &T) {}
    let key = from_file(&expected(), 0o600).expect("a key");
    wiped(&*key.0);
    assert!(std::ptr::eq(key.bytes(), key.clone().bytes()));
}
