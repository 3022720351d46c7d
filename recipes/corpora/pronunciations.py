"""Pronunciation in 16 languages: the corpora `g2p/LANGUAGE` of the second SIGMORPHON shared task (Ashby et al. 2021).

Words of Wiktionary with their phones, collected by WikiPron (CC BY-SA 3.0), in the task's own splits: 33,344 words of
American English to train on ("high"), 8,000 of seven languages ("medium") and 800 of eight others ("low"). Letters are
NFC code points; a blank in a word is "_". The side "decomposed" has the same letters as NFD code points, which are the
consonants and vowels of Korean's syllables: 67 of them instead of 1,089 letters.
"""

import unicodedata
from collections.abc import Callable

from keras_attn.text import read_lines

_COMMIT = "sigmorphon/2021-task1/821bcdece5a47820872215969f275004b0abe80c"
_UPSTREAM = {"train": "train", "val": "dev", "test": "test"}
LANGUAGES = {  # by the amount of training data
    "high": ("eng_us",),
    "medium": ("arm_e", "bul", "dut", "fre", "geo", "jpn_hira", "kor"),
    "low": ("ady", "ice", "ita", "khm", "lav", "mlt_latn", "rum", "wel_sw"),
}


def corpus_name(language: str) -> str:
    """The name of a language's corpus, such as "g2p/ice"."""
    return f"g2p/{language}"


def decomposed(letters: str) -> str:
    """Letters with blanks between, as NFD code points with blanks between."""
    return " ".join(unicodedata.normalize("NFD", letters.replace(" ", "")))


def build(fetch: Callable, base: str, amount: str, language: str) -> dict[str, list[str]]:
    """The six files of a language, as `recipes.corpora.sources` describes them.

    Args:
        fetch: Downloads one file and returns its path.
        base: The address that the repository is below.
        amount: A key of `LANGUAGES`.
        language: One of that amount's.
    """
    files: dict[str, list[str]] = {}
    for split, name in _UPSTREAM.items():
        path = fetch(f"{base}/{_COMMIT}/data/{amount}/{language}_{name}.tsv")
        words, pronunciations = zip(*(line.split("\t") for line in read_lines(path)), strict=True)
        files[f"{split}.letters"] = [" ".join(word.replace(" ", "_")) for word in words]
        files[f"{split}.phones"] = list(pronunciations)
    return files


SHA256 = {  # of each decompressed file
    "g2p/eng_us": {
        "train.letters": "26410e4276c34052c415302ef8c557eed20b6118b22d7bcea8949eb6a1ee9255",
        "train.phones": "f44a0bd190610fee215a4c9dca9076dff1a6df5b7e6cd6c8b64591648a9f57f1",
        "val.letters": "dc4fd1a20b1dd385f0247612dc1a5ba687558e4802a56cb380362d0fb8f1811e",
        "val.phones": "40e9d87e680f9639ea48896bb8c1961010fdee1782ac7335f55f33ff8ecbed63",
        "test.letters": "2bc1aa9fd4c04b7e8136dc779b678f5b790e85cd5529db16502ce6b6c00c5515",
        "test.phones": "a2bbd2540a7b2b4079f19774171d963f79d77d55e171145ab588b1786cb28466",
    },
    "g2p/arm_e": {
        "train.letters": "b9d11b68786487a1bf9403bfcd0c4cd33c417a8fc89226c7846dc403ae5f2eab",
        "train.phones": "5e9ca380a80685c024955ecaa57913b1d01d9f8f978f98a2d698e61eb9109318",
        "val.letters": "da4ec611d154f474b62dddba8e88a38670cd844c19986e21d4f8be2e9d82629d",
        "val.phones": "83d3b906dc59f61b9668fdb2ae87a87c002de529a29f5eebd0c54ea73aefd5f2",
        "test.letters": "a61fdef89d2cc165afcceed2319f08be35b7a548b9341c8ff0a10fa01ff957db",
        "test.phones": "c1f66d1f653122150cc7ce3cf46f3ae4db5dd44b48da70318b10f7c9b013af59",
    },
    "g2p/bul": {
        "train.letters": "31b1a2c993bb900e65cdba0a733570c7e4cba6bd6f8d89a5bb8e404fd8f60db3",
        "train.phones": "9996f3dae9781e64f20adf4557868866701f3258679c04d5805edd994fa1fa9d",
        "val.letters": "3478ed6853bb717f8d561448fbdf9c16ba0dc9a64c522bc280e28f138ea1a5b3",
        "val.phones": "30a87f22904fee102a9d767ed342d99b715646c7234155b859df83c8452bd3ed",
        "test.letters": "3db9db3d8c78680af967384423f638f80f3b64d6dc2df86386dff5d5171beed3",
        "test.phones": "c9a88933135ca2135357c1b853f4392d9b4a653eb25879f400822c4fb51928ea",
    },
    "g2p/dut": {
        "train.letters": "9047d4f3a9db2d6081f88ee26c14f6cc32db825f1a956eb545619459461d1861",
        "train.phones": "4378ec00841bf15ac2129f39887ee75a3390214562b85ac1e6e39d4c7b72e6b4",
        "val.letters": "0b138bda640f4bfb5391fcaf904eb7467ead65dceef8087fc4b16ef6c81841b8",
        "val.phones": "b69e16d55af7b3fb85ca401ce2b217b41ae437b7687498e407d7981297101e77",
        "test.letters": "a18893d583e499550b6ffc30176d34b32c70276830d37287e090843189d413dd",
        "test.phones": "96d653d41263a6874b23a438675cbee07ee4f48706536cf9e6ae3dcd85e65c9b",
    },
    "g2p/fre": {
        "train.letters": "5dda1437849e7f8db4398229c20ef98eff7fb95d221db682aba9c9b863b9f3ad",
        "train.phones": "aed6b157764d093066503178fe075d321c91a83f847aaf1843030f7e4dcce3a0",
        "val.letters": "ac56afa3478e5d13a7bb683fd91679755427320eae1b61c3bc816af2bd918a94",
        "val.phones": "956a3639f496eb56ef56a76e791768409ab3324dcfc637b57d9922e563fd83c7",
        "test.letters": "3b24b38effcf93d411583819753d3a3db5b260a4b0345090a8f1fb44c4d03499",
        "test.phones": "41773ee3e530c3dd687890225663d382bf9db187b8414185f0e6b9c35c4b2a9e",
    },
    "g2p/geo": {
        "train.letters": "2bf1d228411f10cd90b24b64dccf289690270368e6939fefd3447086472cf207",
        "train.phones": "fe9720cd6cff104a45f9920bf0fe3c6dd0231fcfe28a65b1f33f5117145c7596",
        "val.letters": "5eb7a0f3068b02c9d89962165e923f6ffa2216f3a080231534cd0447a06df230",
        "val.phones": "51a155e0c9a2de7e5050ec0dafbc562a0ab417e12fdb0bbbc8c6ec934c2c9245",
        "test.letters": "142eef9928c4c5faf96ab366bd7b99e04d273ed249e1b3399fc5300dd49a155a",
        "test.phones": "5feadf46aeeeb380c81850fcb44b999345bd0503f9fd993cdff035559e384909",
    },
    "g2p/jpn_hira": {
        "train.letters": "4219ba97290e625b2f01b282eae0f866d91d279d7dd9930ee749a54b376be81e",
        "train.phones": "a75fade028f0abaa530df6416180f634444049807940d7844dbf0f4c9c78ac11",
        "val.letters": "aeef677720db0d3b39744f072ee3c9fffeec343ff6a411bcbff34455cd149d68",
        "val.phones": "16bd07d954277be16a6700f70cdd2c6bdcae9e1afc068e8809f553ac45f2c14d",
        "test.letters": "f6785894b6f8b2df10d1f45438e505ca71aa1c468227d03a7096b0b40ddcb69f",
        "test.phones": "d9754ea22ae9a2a27a315b619a63a3681f11e2e347cccd4634e34e7efac0a665",
    },
    "g2p/kor": {
        "train.letters": "8761f24bb5ca712828059e1f7f3fa54a4455df4e0d458c8a5d1a176fdac5ad70",
        "train.phones": "8f9525796b8addab8533466e7823958279d9ab6a416b57eb95b6a8d12632f04a",
        "val.letters": "f8cc812735fce0b32265d119df73ebd301f03f0f483fe37ea2f07980daec4df2",
        "val.phones": "ecc3fe60c445177a49c20aa1e0b6237d2bc2a3e4d9f488c2d74e4bacffaf6bba",
        "test.letters": "ba6558fe1b942747b487b03938cf1d1b49878538c124f8f160ab8f4d931a0fd5",
        "test.phones": "b36507db277d2af47b988d9885bd0721c5137af97601959b3b6a69a237ad5c41",
    },
    "g2p/ady": {
        "train.letters": "9d1871c8ff66550290fa8e619620639867562d56f4b38a61d8db0549feaefdb4",
        "train.phones": "52aa0bc8ff9da6f311678b33cb65c34a731b2f369b773f696f1d773c1645f280",
        "val.letters": "72ac43dc466e2f9872001cef1c41b5eb14b4c189b0b9eba65d3fb530034d2c53",
        "val.phones": "e8917fac6cccad8feaf6c02c97b6b4012cbe5f804dfc5a0d0173a0002495ae67",
        "test.letters": "244fd3f17ebfcdcaa0ceb7c8789490c4fbab478d37c3a6dca0282ae784ed9a90",
        "test.phones": "8c075bee7c622660456492e918e3171673db08250d7c3504e992da18b3830e01",
    },
    "g2p/ice": {
        "train.letters": "b9c00555061fbee29968f91a4c48d7c29f0fd8d033be51299e5dbcd6877e2015",
        "train.phones": "80d9f9fe2d2588a595c34c4a86bf23d71c51006efefd4e66211ff3b31071420e",
        "val.letters": "2e07e447af07023f68af717c6b49252572e425afe2dfc332ded5f60feaabf3ed",
        "val.phones": "cdac2d00ce6ff90c1669622a7043563935995edd0d1bf20cd492491dd0e10b44",
        "test.letters": "2350d920b08b7b2b29b081eb5b9dba08cdd0b9138624b9c9620d2f8da36b5da8",
        "test.phones": "336d44abe9895f6e6a3df9a358978169347af5ea7295b5081db61ad41feb7f50",
    },
    "g2p/ita": {
        "train.letters": "afa3e03c53ec95789cc492a7ae66efb164ad383afafc1b6b01c83cc24af9be86",
        "train.phones": "4aa0eefebab83e6d2075f3b5c1fd4b3b463f857cc1ba696702c202896d8bcfc3",
        "val.letters": "c0013137fc0c3048f58d9224411c6694786de23be49695ff70a13c15a9e53305",
        "val.phones": "06d0c161daa68c98601a61a6e5bbb5ee198ce8912e1b2ae89ce3359d5c56ee56",
        "test.letters": "cf78f4a8424d0adea6a430452b894b9601e4de947b7141b6bcc7da456417d4a0",
        "test.phones": "50f920b2ccf39de755bf8e751b9702e8cf59630877fd27e7830823112eb94312",
    },
    "g2p/khm": {
        "train.letters": "f1a80b92cd7ea6055502791174715d25ffb69f7fe87b755ebe15d6f1730f06b5",
        "train.phones": "79b8bdf2bf6151bd9bc59a78b8e422e0d422b8dfe1e0097619783667f1d782fd",
        "val.letters": "c62b88ad09bb4e4efe32c8efb041117fcc0d5c2bcd1769464edd7580a44fae9a",
        "val.phones": "1251f030aa124be4689cb5069a0670967b98a0771b1f937a1beb1632fa99677f",
        "test.letters": "b4f232a980c97270534847a6c07b775decefce773e3462b0aefbdbcef92e144f",
        "test.phones": "adbd2d08e2976d0266cc574d86a7891915256025a8743f50c4da06da23a968ec",
    },
    "g2p/lav": {
        "train.letters": "dac0f695bcfae2831fd1e7aacb2273e95ae470ecabc03b8aa63a3151d03429cc",
        "train.phones": "3c8991a84dcd463fc4822947d17a533a682391a58bfebbb2173805b98890c03d",
        "val.letters": "320e4a4b3418216f2071c1e811fa479e8ae2f6f9a626025df7ba687e81821f02",
        "val.phones": "148317dc0186453297eb5eafc43ae88fbe955494c4ff2b316415ce07f8f9317f",
        "test.letters": "e585fccce2a63b6dd217e649cae625c6623f5d057e7093bd6b8fd13893617f2f",
        "test.phones": "24e0160dcce99c103a9fb506b9392ae2049c2c5c8aa1f31497d6762aceac879c",
    },
    "g2p/mlt_latn": {
        "train.letters": "ce05afd4aeaf388b3b777e631bc84edd131d9203e50b075e7c9756eb08ec767f",
        "train.phones": "e8dc3eb2311a5f20ce68ea487b3854dfad0c114d061ed85a90c1f2a344a0c357",
        "val.letters": "a0ed31873221f7cae3d4f3d587e15ff6967d92ddfb0f562602eced64cd3517cd",
        "val.phones": "d5e5a3ef1772656ce8883922d70011d2829439f4a061e0d25d7f7ec2f91e1d70",
        "test.letters": "0d887ff91184e8811caea020903d391203a5dbaf6381b37cb3456784cd0ab9ba",
        "test.phones": "39fc1ccf3939cc7d23f357a45f4efb8a87b824c4bd649df932ae7086ef974a45",
    },
    "g2p/rum": {
        "train.letters": "8df776b34d2229b0d136511a9ac70b76cbeec9916319cab5c06d46c3e4c93a0f",
        "train.phones": "9b1b82259db2e1ce6e83219f5789d0cd4d50118cb274914175ee25c2689c8635",
        "val.letters": "3f6ac76024d41d53e1f901f1415a992170d01464681574db5dc0eade5fc13647",
        "val.phones": "58d5d79d2a412f6384546b399c6830928362ba3fe2748ef3e9d7b7309147b76a",
        "test.letters": "0296689923e57dc16cbe022c4983a96999dceb12dc7c8921b603cdebf1063ff9",
        "test.phones": "45f90f0ba8f0218c7c21a7449d774c616dbb371b02f4c5b84ef6b6c125545ce3",
    },
    "g2p/wel_sw": {
        "train.letters": "afe4b19b2d2fc0447370f46e0a603062f52c7fe2d47ee569556231c9806e82ca",
        "train.phones": "379e28ebb6d91d48539ca0217c1b508b611fc36cf9628184fd90078ca1edd415",
        "val.letters": "90ba2c1cb25a670b84531111fc671a6bba9883637df26dd1ad97c234cf726b15",
        "val.phones": "64bfd6448b2b4d868fa8d49f47fd08de9131d3b9cddb8dc323d28c54e445480a",
        "test.letters": "ea1eb80db948486880282ee5ca178ae1d584a901c88a6c590f7aa62175392466",
        "test.phones": "60ff9a42247fa349c9a98e2ff2519f0b0dc8b8713a4464a4abb7b0c8525a16ae",
    },
}
