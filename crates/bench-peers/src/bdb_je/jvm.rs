//! The Java virtual machine in this process. There is one at most, and it cannot be started again.

use std::path::PathBuf;

use fulgurite_bench::{Error, Result};
use jni::errors::StartJvmError;
use jni::objects::{Global, JClass, JClassLoader, JObject};
use jni::signature::{Primitive, ReturnType};
use jni::strings::JNIStr;
use jni::sys::jvalue;
use jni::{AttachConfig, Env, InitArgsBuilder, JValue, JValueOwned, JavaVM, jni_sig, jni_str};
use parking_lot::Mutex;

use crate::common::failed;

/// The output of the build script.
pub(super) struct Built {
    /// The jar that it compiled against.
    pub jar: &'static str,
    /// The classes, each after those that it needs.
    pub classes: [&'static [u8]; 2],
}

include!(concat!(env!("OUT_DIR"), "/built.rs"));

/// Heap for everything but the cache, bytes.
const HEAP_BESIDE_CACHE: u64 = 96 << 20;
/// The smallest cache that the heap is made for, bytes: a process may open several stores with small ones.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// The heap that leaves room for a cache of `cache_bytes`, and for garbage that is not collected yet.
pub(super) fn heap_bytes(cache_bytes: u64) -> u64 {
    cache_bytes + cache_bytes / 2 + HEAP_BESIDE_CACHE
}

/// The jar: the one that `FULGURITE_JE_JAR` names, or the one of the build.
pub(super) fn jar() -> Result<PathBuf, String> {
    let built = BUILT.map_err(str::to_string)?;
    let jar = std::env::var_os("FULGURITE_JE_JAR").map_or_else(|| built.jar.into(), PathBuf::from);
    match jar.is_file() {
        true => Ok(jar),
        false => Err(format!("there is no {}: FULGURITE_JE_JAR may say where it is", jar.display())),
    }
}

/// The library of the virtual machine: that of `JAVA_HOME`, or of the first `java` in the search path.
pub(super) fn library() -> Result<PathBuf, String> {
    const LIBRARY: &str = "lib/server/libjvm.so";
    let home = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let javas = std::env::split_paths(&path).filter_map(|dir| dir.join("java").canonicalize().ok());
    let homes = javas.filter_map(|java| Some(java.parent()?.parent()?.to_path_buf()));
    let mut libraries = home.into_iter().chain(homes).map(|home| home.join(LIBRARY));
    libraries.find(|library| library.is_file()).ok_or_else(|| {
        "no libjvm.so in JAVA_HOME or beside `java`: run `apt-get install default-jdk-headless`".to_string()
    })
}

static RUNNING: Mutex<Option<&'static Jvm>> = Mutex::new(None);

/// A running virtual machine, with the classes of this crate.
pub(super) struct Jvm {
    vm: JavaVM,
    peer: Global<JClass<'static>>,
    cache_bytes: u64,
    pub methods: Methods,
}

impl Jvm {
    /// The virtual machine of this process; started if need be, with a heap for a cache of `cache_bytes`.
    ///
    /// # Errors
    /// If something is missing, or if it was started for a smaller cache.
    pub fn running(cache_bytes: u64) -> Result<&'static Jvm> {
        let cache_bytes = cache_bytes.max(CACHE_BYTES_MIN);
        let mut running = RUNNING.lock();
        let jvm = match *running {
            Some(jvm) => jvm,
            None => running.insert(Box::leak(Box::new(Jvm::start(cache_bytes)?))),
        };
        if cache_bytes > jvm.cache_bytes {
            let had = jvm.cache_bytes >> 20;
            let why = format!(
                "this process has it for a cache of {had} MiB: take another process for a larger one"
            );
            return Err(Error::engine("growing the heap of the Java virtual machine", why));
        }
        Ok(jvm)
    }

    fn start(cache_bytes: u64) -> Result<Jvm> {
        let missing = |why: String| Error::engine("starting a Java virtual machine", why);
        let (jar, library) = (jar().map_err(missing)?, library().map_err(missing)?);
        let classes = BUILT.map_err(|why| missing(why.to_string()))?.classes;
        let arguments = InitArgsBuilder::new()
            .option(format!("-Djava.class.path={}", jar.display()))
            .option(format!("-Xmx{}k", heap_bytes(cache_bytes) >> 10))
            // The benchmark handles signals; a file of performance counters must not join its files.
            .option("-Xrs")
            .option("-XX:-UsePerfData")
            .build()
            .map_err(failed("starting a Java virtual machine"))?;
        let vm = JavaVM::with_libjvm(arguments, || Ok::<_, StartJvmError>(library))
            .map_err(failed("starting a Java virtual machine"))?;
        let load = |env: &mut Env<'_>| load(env, classes);
        let (peer, methods) = vm.attach_current_thread(load).map_err(thrown("loading Peer.java"))?;
        Ok(Jvm { vm, peer, cache_bytes, methods })
    }

    /// `Peer.open`, with a durability as `durability_number` numbers it.
    pub fn open(&self, dir: &str, tables: &str, cache_bytes: u64, durability: i32) -> Result<Object> {
        let open = |env: &mut Env<'_>| {
            let (dir, tables) = (env.new_string(dir)?, env.new_string(tables)?);
            let arguments = [
                JValue::Object(&dir),
                JValue::Object(&tables),
                JValue::Long(i64::try_from(cache_bytes).unwrap_or(i64::MAX)),
                JValue::Int(durability),
            ];
            let signature = jni_sig!("(Ljava/lang/String;Ljava/lang/String;JI)LPeer;");
            let opened = env.call_static_method(&*self.peer, jni_str!("open"), signature, &arguments)?.l()?;
            env.new_global_ref(opened)
        };
        self.vm.attach_current_thread(open).map_err(thrown("opening an environment"))
    }

    /// Calls a method that returns an object.
    pub fn object(&self, object: &Object, method: Method, what: &'static str) -> Result<Object> {
        let call = |env: &mut Env<'_>| {
            // SAFETY: `methods!` has the method's signature; this one takes nothing and returns an object.
            let made = unsafe { env.call_method_unchecked(&**object, method.0, ReturnType::Object, &[]) }?;
            env.new_global_ref(made.l()?)
        };
        self.vm.attach_current_thread(call).map_err(thrown(what))
    }

    /// Gives a session the memory for its keys and values.
    ///
    /// # Safety
    /// `at` has to point to `bytes` bytes that outlive the calls of the session's methods, or the next call of this.
    pub unsafe fn share(&self, session: &Object, at: *mut u8, bytes: usize) -> Result<()> {
        let share = |env: &mut Env<'_>| {
            // SAFETY: the caller keeps the memory valid for as long as the session uses it.
            let buffer = unsafe { env.new_direct_byte_buffer(at, bytes) }?;
            let arguments = [jvalue { l: buffer.as_raw() }];
            let (method, returns) = (self.methods.buffer.0, ReturnType::Primitive(Primitive::Void));
            // SAFETY: `methods!` has the method's signature; it takes a buffer and returns nothing.
            unsafe { env.call_method_unchecked(&**session, method, returns, &arguments) }.map(|_| ())
        };
        self.vm.attach_current_thread(share).map_err(thrown("sharing memory"))
    }

    /// Calls a method without references among its arguments and in its result, a number or nothing (0): no JNI frame is
    /// needed for them.
    pub fn call(
        &self,
        object: &Object,
        method: Method,
        returns: Primitive,
        arguments: &[jvalue],
        what: &'static str,
    ) -> Result<i32> {
        let call = |env: &mut Env<'_>| {
            let returns = ReturnType::Primitive(returns);
            // SAFETY: `methods!` has the method's signature, and the callers in this folder pass what it takes.
            let returned = unsafe { env.call_method_unchecked(&**object, method.0, returns, arguments) }?;
            Ok(if let JValueOwned::Int(number) = returned { number } else { 0 })
        };
        self.vm.attach_current_thread_with_config(AttachConfig::default, None, call).map_err(thrown(what))
    }
}

/// A Java object that stays alive.
pub(super) type Object = Global<JObject<'static>>;

fn load(env: &mut Env<'_>, classes: [&[u8]; 2]) -> jni::errors::Result<(Global<JClass<'static>>, Methods)> {
    let loader = JClassLoader::get_system_class_loader(env)?;
    let [session, peer] = classes;
    let session = env.define_class(None::<&JNIStr>, &loader, session)?;
    let peer = env.define_class(None::<&JNIStr>, &loader, peer)?;
    let methods = look_up_methods(env, &peer, &session)?;
    // The methods stay valid as long as their classes are loaded: the class of the store keeps the other one loaded.
    Ok((env.new_global_ref(peer)?, methods))
}

/// An error of Java or of JNI, with the operation that failed.
fn thrown(what: &'static str) -> impl FnOnce(jni::errors::Error) -> Error {
    move |error| match error {
        jni::errors::Error::CaughtJavaException { name, msg, .. } => {
            Error::engine(what, format!("{name}: {msg}"))
        }
        error => Error::engine(what, error),
    }
}

macro_rules! methods {
    ($($name:ident = $class:ident $java:tt $signature:tt,)*) => {
        /// The methods that are called.
        #[derive(Clone, Copy)]
        pub(super) struct Methods {
            $(pub $name: Method,)*
        }

        fn look_up_methods(env: &mut Env<'_>, peer: &JClass<'_>, session: &JClass<'_>) -> jni::errors::Result<Methods> {
            let classes = Classes { peer, session };
            Ok(Methods {
                $($name: Method(env.get_method_id(classes.$class, jni_str!($java), jni_sig!($signature))?),)*
            })
        }
    };
}

struct Classes<'a> {
    peer: &'a JClass<'a>,
    session: &'a JClass<'a>,
}

/// A method of a class that stays loaded.
#[derive(Clone, Copy)]
pub(super) struct Method(jni::objects::JMethodID);

methods! {
    new_session = peer "session" "()LPeerSession;",
    sync = peer "sync" "()V",
    close = peer "close" "()V",
    buffer = session "buffer" "(Ljava/nio/ByteBuffer;)V",
    begin = session "begin" "(Z)V",
    commit = session "commit" "()I",
    abort = session "abort" "()V",
    get = session "get" "(IIZ)I",
    put = session "put" "(III)I",
    delete = session "delete" "(II)I",
    scan = session "scan" "(IIZZ)I",
    next = session "next" "(I)I",
    end_scan = session "endScan" "()V",
}
