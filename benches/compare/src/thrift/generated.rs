pub mod compare {
    #![allow(warnings, clippy::all)]

    pub mod compare {

        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Default, Clone, PartialEq)]
        pub struct NotFound {
            pub message: ::pilota::FastStr,
        }
        impl ::pilota::thrift::Message for NotFound {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                let struct_ident = ::pilota::thrift::TStructIdentifier { name: "NotFound" };

                __protocol.write_struct_begin(&struct_ident)?;
                __protocol.write_faststr_field(1, (&self.message).clone())?;
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};

                let mut var_1 = ::std::option::Option::None;

                let mut __pilota_decoding_field_id = ::std::option::Option::None;

                __protocol.read_struct_begin()?;
                if let ::std::result::Result::Err(mut err) = (|| {
                    loop {
                        let field_ident = __protocol.read_field_begin()?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            __protocol.field_stop_len();
                            break;
                        } else {
                            __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                        }
                        __pilota_decoding_field_id = field_ident.id;
                        match field_ident.id {
                            ::std::option::Option::Some(1)
                                if field_ident.field_type == ::pilota::thrift::TType::Binary =>
                            {
                                var_1 = ::std::option::Option::Some(__protocol.read_faststr()?);
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type)?;
                            }
                        }

                        __protocol.read_field_end()?;
                        __protocol.field_end_len();
                    }
                    ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                })() {
                    if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                        err.prepend_msg(&format!(
                            "decode struct `NotFound` field(#{}) failed, caused by: ",
                            field_id
                        ));
                    }
                    return ::std::result::Result::Err(err);
                };
                __protocol.read_struct_end()?;

                let ::std::option::Option::Some(var_1) = var_1 else {
                    return ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "field message is required".to_string(),
                    ));
                };

                let data = Self { message: var_1 };
                ::std::result::Result::Ok(data)
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut var_1 = ::std::option::Option::None;

                    let mut __pilota_decoding_field_id = ::std::option::Option::None;

                    __protocol.read_struct_begin().await?;
                    if let ::std::result::Result::Err(mut err) = async {
                        loop {
                            let field_ident = __protocol.read_field_begin().await?;
                            if field_ident.field_type == ::pilota::thrift::TType::Stop {
                                break;
                            } else {
                            }
                            __pilota_decoding_field_id = field_ident.id;
                            match field_ident.id {
                                ::std::option::Option::Some(1)
                                    if field_ident.field_type
                                        == ::pilota::thrift::TType::Binary =>
                                {
                                    var_1 = ::std::option::Option::Some(
                                        __protocol.read_faststr().await?,
                                    );
                                }
                                _ => {
                                    __protocol.skip(field_ident.field_type).await?;
                                }
                            }

                            __protocol.read_field_end().await?;
                        }
                        ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                    }
                    .await
                    {
                        if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                            err.prepend_msg(&format!(
                                "decode struct `NotFound` field(#{}) failed, caused by: ",
                                field_id
                            ));
                        }
                        return ::std::result::Result::Err(err);
                    };
                    __protocol.read_struct_end().await?;

                    let ::std::option::Option::Some(var_1) = var_1 else {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_protocol_exception(
                                ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                "field message is required".to_string(),
                            ),
                        );
                    };

                    let data = Self { message: var_1 };
                    ::std::result::Result::Ok(data)
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol
                    .struct_begin_len(&::pilota::thrift::TStructIdentifier { name: "NotFound" })
                    + __protocol.faststr_field_len(::std::option::Option::Some(1), &self.message)
                    + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        impl ::std::default::Default for EchoRefusedException {
            fn default() -> Self {
                EchoRefusedException::NotFound(::std::default::Default::default())
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Clone, PartialEq)]
        pub enum EchoRefusedException {
            NotFound(NotFound),
        }

        impl ::pilota::thrift::Message for EchoRefusedException {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                __protocol.write_struct_begin(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedException",
                })?;
                match self {
                    EchoRefusedException::NotFound(value) => {
                        __protocol.write_struct_field(1, value, ::pilota::thrift::TType::Struct)?;
                    }
                }
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};
                let mut ret = ::std::option::Option::None;
                __protocol.read_struct_begin()?;
                loop {
                    let field_ident = __protocol.read_field_begin()?;
                    if field_ident.field_type == ::pilota::thrift::TType::Stop {
                        __protocol.field_stop_len();
                        break;
                    } else {
                        __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                    }
                    match field_ident.id {
                        ::std::option::Option::Some(1) => {
                            if ret.is_none() {
                                let field_ident = ::pilota::thrift::Message::decode(__protocol)?;
                                __protocol.struct_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoRefusedException::NotFound(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        _ => {
                            __protocol.skip(field_ident.field_type)?;
                        }
                    }
                }
                __protocol.read_field_end()?;
                __protocol.read_struct_end()?;
                if let ::std::option::Option::Some(ret) = ret {
                    ::std::result::Result::Ok(ret)
                } else {
                    ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "received empty union from remote Message",
                    ))
                }
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut ret = ::std::option::Option::None;
                    __protocol.read_struct_begin().await?;
                    loop {
                        let field_ident = __protocol.read_field_begin().await?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            break;
                        } else {
                        }
                        match field_ident.id {
                            ::std::option::Option::Some(1) => {
                                if ret.is_none() {
                                    let field_ident =
                                        <NotFound as ::pilota::thrift::Message>::decode_async(
                                            __protocol,
                                        )
                                        .await?;

                                    ret = ::std::option::Option::Some(
                                        EchoRefusedException::NotFound(field_ident),
                                    );
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type).await?;
                            }
                        }
                    }
                    __protocol.read_field_end().await?;
                    __protocol.read_struct_end().await?;
                    if let ::std::option::Option::Some(ret) = ret {
                        ::std::result::Result::Ok(ret)
                    } else {
                        ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                            "received empty union from remote Message",
                        ))
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedException",
                }) + match self {
                    EchoRefusedException::NotFound(value) => {
                        __protocol.struct_field_len(::std::option::Option::Some(1), value)
                    }
                } + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        impl ::std::default::Default for EchoRefusedResultSend {
            fn default() -> Self {
                EchoRefusedResultSend::Ok(::std::default::Default::default())
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Clone, PartialEq)]
        pub enum EchoRefusedResultSend {
            Ok(::pilota::Bytes),

            NotFound(NotFound),
        }

        impl ::pilota::thrift::Message for EchoRefusedResultSend {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                __protocol.write_struct_begin(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedResultSend",
                })?;
                match self {
                    EchoRefusedResultSend::Ok(value) => {
                        __protocol.write_bytes_field(0, (value).clone())?;
                    }
                    EchoRefusedResultSend::NotFound(value) => {
                        __protocol.write_struct_field(1, value, ::pilota::thrift::TType::Struct)?;
                    }
                }
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};
                let mut ret = ::std::option::Option::None;
                __protocol.read_struct_begin()?;
                loop {
                    let field_ident = __protocol.read_field_begin()?;
                    if field_ident.field_type == ::pilota::thrift::TType::Stop {
                        __protocol.field_stop_len();
                        break;
                    } else {
                        __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                    }
                    match field_ident.id {
                        ::std::option::Option::Some(0) => {
                            if ret.is_none() {
                                let field_ident = __protocol.read_bytes()?;
                                __protocol.bytes_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoRefusedResultSend::Ok(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        ::std::option::Option::Some(1) => {
                            if ret.is_none() {
                                let field_ident = ::pilota::thrift::Message::decode(__protocol)?;
                                __protocol.struct_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoRefusedResultSend::NotFound(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        _ => {
                            __protocol.skip(field_ident.field_type)?;
                        }
                    }
                }
                __protocol.read_field_end()?;
                __protocol.read_struct_end()?;
                if let ::std::option::Option::Some(ret) = ret {
                    ::std::result::Result::Ok(ret)
                } else {
                    ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "received empty union from remote Message",
                    ))
                }
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut ret = ::std::option::Option::None;
                    __protocol.read_struct_begin().await?;
                    loop {
                        let field_ident = __protocol.read_field_begin().await?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            break;
                        } else {
                        }
                        match field_ident.id {
                            ::std::option::Option::Some(0) => {
                                if ret.is_none() {
                                    let field_ident = __protocol.read_bytes().await?;

                                    ret = ::std::option::Option::Some(EchoRefusedResultSend::Ok(
                                        field_ident,
                                    ));
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            ::std::option::Option::Some(1) => {
                                if ret.is_none() {
                                    let field_ident =
                                        <NotFound as ::pilota::thrift::Message>::decode_async(
                                            __protocol,
                                        )
                                        .await?;

                                    ret = ::std::option::Option::Some(
                                        EchoRefusedResultSend::NotFound(field_ident),
                                    );
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type).await?;
                            }
                        }
                    }
                    __protocol.read_field_end().await?;
                    __protocol.read_struct_end().await?;
                    if let ::std::option::Option::Some(ret) = ret {
                        ::std::result::Result::Ok(ret)
                    } else {
                        ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                            "received empty union from remote Message",
                        ))
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedResultSend",
                }) + match self {
                    EchoRefusedResultSend::Ok(value) => {
                        __protocol.bytes_field_len(::std::option::Option::Some(0), value)
                    }
                    EchoRefusedResultSend::NotFound(value) => {
                        __protocol.struct_field_len(::std::option::Option::Some(1), value)
                    }
                } + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        impl ::std::default::Default for EchoRefusedResultRecv {
            fn default() -> Self {
                EchoRefusedResultRecv::Ok(::std::default::Default::default())
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Clone, PartialEq)]
        pub enum EchoRefusedResultRecv {
            Ok(::pilota::Bytes),

            NotFound(NotFound),
        }

        impl ::pilota::thrift::Message for EchoRefusedResultRecv {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                __protocol.write_struct_begin(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedResultRecv",
                })?;
                match self {
                    EchoRefusedResultRecv::Ok(value) => {
                        __protocol.write_bytes_field(0, (value).clone())?;
                    }
                    EchoRefusedResultRecv::NotFound(value) => {
                        __protocol.write_struct_field(1, value, ::pilota::thrift::TType::Struct)?;
                    }
                }
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};
                let mut ret = ::std::option::Option::None;
                __protocol.read_struct_begin()?;
                loop {
                    let field_ident = __protocol.read_field_begin()?;
                    if field_ident.field_type == ::pilota::thrift::TType::Stop {
                        __protocol.field_stop_len();
                        break;
                    } else {
                        __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                    }
                    match field_ident.id {
                        ::std::option::Option::Some(0) => {
                            if ret.is_none() {
                                let field_ident = __protocol.read_bytes()?;
                                __protocol.bytes_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoRefusedResultRecv::Ok(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        ::std::option::Option::Some(1) => {
                            if ret.is_none() {
                                let field_ident = ::pilota::thrift::Message::decode(__protocol)?;
                                __protocol.struct_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoRefusedResultRecv::NotFound(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        _ => {
                            __protocol.skip(field_ident.field_type)?;
                        }
                    }
                }
                __protocol.read_field_end()?;
                __protocol.read_struct_end()?;
                if let ::std::option::Option::Some(ret) = ret {
                    ::std::result::Result::Ok(ret)
                } else {
                    ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "received empty union from remote Message",
                    ))
                }
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut ret = ::std::option::Option::None;
                    __protocol.read_struct_begin().await?;
                    loop {
                        let field_ident = __protocol.read_field_begin().await?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            break;
                        } else {
                        }
                        match field_ident.id {
                            ::std::option::Option::Some(0) => {
                                if ret.is_none() {
                                    let field_ident = __protocol.read_bytes().await?;

                                    ret = ::std::option::Option::Some(EchoRefusedResultRecv::Ok(
                                        field_ident,
                                    ));
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            ::std::option::Option::Some(1) => {
                                if ret.is_none() {
                                    let field_ident =
                                        <NotFound as ::pilota::thrift::Message>::decode_async(
                                            __protocol,
                                        )
                                        .await?;

                                    ret = ::std::option::Option::Some(
                                        EchoRefusedResultRecv::NotFound(field_ident),
                                    );
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type).await?;
                            }
                        }
                    }
                    __protocol.read_field_end().await?;
                    __protocol.read_struct_end().await?;
                    if let ::std::option::Option::Some(ret) = ret {
                        ::std::result::Result::Ok(ret)
                    } else {
                        ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                            "received empty union from remote Message",
                        ))
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedResultRecv",
                }) + match self {
                    EchoRefusedResultRecv::Ok(value) => {
                        __protocol.bytes_field_len(::std::option::Option::Some(0), value)
                    }
                    EchoRefusedResultRecv::NotFound(value) => {
                        __protocol.struct_field_len(::std::option::Option::Some(1), value)
                    }
                } + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Default, Clone, PartialEq)]
        pub struct EchoRefusedArgsRecv {
            pub body: ::pilota::Bytes,
        }
        impl ::pilota::thrift::Message for EchoRefusedArgsRecv {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                let struct_ident =
                    ::pilota::thrift::TStructIdentifier { name: "EchoRefusedArgsRecv" };

                __protocol.write_struct_begin(&struct_ident)?;
                __protocol.write_bytes_field(1, (&self.body).clone())?;
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};

                let mut var_1 = ::std::option::Option::None;

                let mut __pilota_decoding_field_id = ::std::option::Option::None;

                __protocol.read_struct_begin()?;
                if let ::std::result::Result::Err(mut err) = (|| {
                    loop {
                        let field_ident = __protocol.read_field_begin()?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            __protocol.field_stop_len();
                            break;
                        } else {
                            __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                        }
                        __pilota_decoding_field_id = field_ident.id;
                        match field_ident.id {
                            ::std::option::Option::Some(1)
                                if field_ident.field_type == ::pilota::thrift::TType::Binary =>
                            {
                                var_1 = ::std::option::Option::Some(__protocol.read_bytes()?);
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type)?;
                            }
                        }

                        __protocol.read_field_end()?;
                        __protocol.field_end_len();
                    }
                    ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                })() {
                    if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                        err.prepend_msg(&format!(
                            "decode struct `EchoRefusedArgsRecv` field(#{}) failed, caused by: ",
                            field_id
                        ));
                    }
                    return ::std::result::Result::Err(err);
                };
                __protocol.read_struct_end()?;

                let ::std::option::Option::Some(var_1) = var_1 else {
                    return ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "field body is required".to_string(),
                    ));
                };

                let data = Self { body: var_1 };
                ::std::result::Result::Ok(data)
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut var_1 = ::std::option::Option::None;

                    let mut __pilota_decoding_field_id = ::std::option::Option::None;

                    __protocol.read_struct_begin().await?;
                    if let ::std::result::Result::Err(mut err) = async {
                        loop {
                            let field_ident = __protocol.read_field_begin().await?;
                            if field_ident.field_type == ::pilota::thrift::TType::Stop {
                                break;
                            } else {
                            }
                            __pilota_decoding_field_id = field_ident.id;
                            match field_ident.id {
                                ::std::option::Option::Some(1)
                                    if field_ident.field_type
                                        == ::pilota::thrift::TType::Binary =>
                                {
                                    var_1 =
                                        ::std::option::Option::Some(__protocol.read_bytes().await?);
                                }
                                _ => {
                                    __protocol.skip(field_ident.field_type).await?;
                                }
                            }

                            __protocol.read_field_end().await?;
                        }
                        ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                    }
                    .await
                    {
                        if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                            err.prepend_msg(&format!("decode struct `EchoRefusedArgsRecv` field(#{}) failed, caused by: ", field_id));
                        }
                        return ::std::result::Result::Err(err);
                    };
                    __protocol.read_struct_end().await?;

                    let ::std::option::Option::Some(var_1) = var_1 else {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_protocol_exception(
                                ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                "field body is required".to_string(),
                            ),
                        );
                    };

                    let data = Self { body: var_1 };
                    ::std::result::Result::Ok(data)
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedArgsRecv",
                }) + __protocol.bytes_field_len(::std::option::Option::Some(1), &self.body)
                    + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        pub trait Echo {
            fn unary(
                &self,
                body: ::pilota::Bytes,
            ) -> impl ::std::future::Future<
                Output = ::core::result::Result<::pilota::Bytes, ::volo_thrift::ServerError>,
            > + Send;
            fn refused(
                &self,
                body: ::pilota::Bytes,
            ) -> impl ::std::future::Future<
                Output = ::core::result::Result<
                    ::volo_thrift::MaybeException<::pilota::Bytes, EchoRefusedException>,
                    ::volo_thrift::ServerError,
                >,
            > + Send;
        }
        #[derive(Clone)]
        pub struct EchoServer<S> {
            inner: S, // handler
        }

        impl<S> EchoServer<S> {
            /// Creates a new server instance from the handler.
            ///
            /// Use this method when you need to add the service to a [`Router`] for multi-service support.
            ///
            /// [`Router`]: volo_thrift::server::Router
            pub fn from_handler(handler: S) -> Self {
                Self { inner: handler }
            }
        }

        impl<S> EchoServer<S>
        where
            S: Echo + ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            /// Creates a new [`Server`] with this service.
            ///
            /// Use this method for single-service servers. For multi-service support,
            /// use [`from_handler`] and add to a [`Router`] instead.
            ///
            /// [`Server`]: volo_thrift::server::Server
            /// [`from_handler`]: Self::from_handler
            /// [`Router`]: volo_thrift::server::Router
            pub fn new(
                inner: S,
            ) -> ::volo_thrift::server::Server<
                Self,
                ::volo::layer::Identity,
                EchoRequestRecv,
                ::volo_thrift::codec::default::DefaultMakeCodec<
                    ::volo_thrift::codec::default::ttheader::MakeTTHeaderCodec<
                        ::volo_thrift::codec::default::framed::MakeFramedCodec<
                            ::volo_thrift::codec::default::thrift::MakeThriftCodec,
                        >,
                    >,
                >,
                ::volo_thrift::tracing::DefaultProvider,
            > {
                ::volo_thrift::server::Server::new(Self { inner })
            }
        }

        impl<T> ::volo::service::Service<::volo_thrift::context::ServerContext, EchoRequestRecv>
            for EchoServer<T>
        where
            T: Echo + Send + Sync + 'static,
        {
            type Response = EchoResponseSend;
            type Error = ::volo_thrift::ServerError;

            async fn call<'s, 'cx>(
                &'s self,
                _cx: &'cx mut ::volo_thrift::context::ServerContext,
                req: EchoRequestRecv,
            ) -> ::std::result::Result<Self::Response, Self::Error> {
                match req {
                    EchoRequestRecv::Unary(args) => ::std::result::Result::Ok(
                        EchoResponseSend::Unary(match self.inner.unary(args.body).await {
                            ::std::result::Result::Ok(resp) => EchoUnaryResultSend::Ok(resp),
                            ::std::result::Result::Err(err) => {
                                return ::std::result::Result::Err(err);
                            }
                        }),
                    ),
                    EchoRequestRecv::Refused(args) => ::std::result::Result::Ok(
                        EchoResponseSend::Refused(match self.inner.refused(args.body).await {
                            ::std::result::Result::Ok(::volo_thrift::MaybeException::Ok(resp)) => {
                                EchoRefusedResultSend::Ok(resp)
                            }
                            ::std::result::Result::Ok(
                                ::volo_thrift::MaybeException::Exception(
                                    EchoRefusedException::NotFound(ex),
                                ),
                            ) => EchoRefusedResultSend::NotFound(ex),
                            ::std::result::Result::Err(err) => {
                                return ::std::result::Result::Err(err);
                            }
                        }),
                    ),
                }
            }
        }

        impl<S> ::volo_thrift::server::NamedService for EchoServer<S> {
            const NAME: &'static str = "Echo";
        }

        pub struct MkEchoGenericClient;

        pub type EchoClient = EchoGenericClient<
            ::volo::service::BoxCloneService<
                ::volo_thrift::context::ClientContext,
                EchoRequestSend,
                ::std::option::Option<EchoResponseRecv>,
                ::volo_thrift::ClientError,
            >,
        >;

        impl<S> ::volo::client::MkClient<::volo_thrift::Client<S>> for MkEchoGenericClient {
            type Target = EchoGenericClient<S>;
            fn mk_client(&self, service: ::volo_thrift::Client<S>) -> Self::Target {
                EchoGenericClient(service)
            }
        }

        #[derive(Clone)]
        pub struct EchoGenericClient<S>(pub ::volo_thrift::Client<S>);

        pub struct EchoOneShotClient<S>(pub ::volo_thrift::Client<S>);

        impl<
            S: ::volo::service::Service<
                    ::volo_thrift::context::ClientContext,
                    EchoRequestSend,
                    Response = ::std::option::Option<EchoResponseRecv>,
                    Error = ::volo_thrift::ClientError,
                > + Send
                + Sync
                + 'static,
        > EchoGenericClient<S>
        {
            pub fn with_callopt<
                Opt: ::volo::client::Apply<::volo_thrift::context::ClientContext>,
            >(
                self,
                opt: Opt,
            ) -> EchoOneShotClient<::volo::client::WithOptService<S, Opt>> {
                EchoOneShotClient(self.0.with_opt(opt))
            }

            pub async fn unary(
                &self,
                body: ::pilota::Bytes,
            ) -> ::std::result::Result<::pilota::Bytes, ::volo_thrift::ClientError> {
                let req = EchoRequestSend::Unary(EchoUnaryArgsSend { body });
                let mut cx = self.0.make_cx("Unary", false);
                // Set IDL service name for multi-service routing
                ::volo_thrift::context::ThriftContext::set_idl_service_name(
                    &mut cx,
                    ::volo::FastStr::from_static_str("Echo"),
                );
                #[allow(unreachable_patterns)]
                let resp = match ::volo::service::Service::call(&self.0, &mut cx, req).await? {
                    Some(EchoResponseRecv::Unary(EchoUnaryResultRecv::Ok(resp))) => {
                        ::std::result::Result::Ok(resp)
                    }
                    None => unreachable!(),
                    _ => unreachable!(),
                };
                ::volo_thrift::context::CLIENT_CONTEXT_CACHE.with(|cache| {
                    let mut cache = cache.borrow_mut();
                    if cache.len() < cache.capacity() {
                        cache.push(cx);
                    }
                });
                resp
            }
            pub async fn refused(
                &self,
                body: ::pilota::Bytes,
            ) -> ::std::result::Result<
                ::volo_thrift::MaybeException<::pilota::Bytes, EchoRefusedException>,
                ::volo_thrift::ClientError,
            > {
                let req = EchoRequestSend::Refused(EchoRefusedArgsSend { body });
                let mut cx = self.0.make_cx("Refused", false);
                // Set IDL service name for multi-service routing
                ::volo_thrift::context::ThriftContext::set_idl_service_name(
                    &mut cx,
                    ::volo::FastStr::from_static_str("Echo"),
                );
                #[allow(unreachable_patterns)]
                let resp = match ::volo::service::Service::call(&self.0, &mut cx, req).await? {
                    Some(EchoResponseRecv::Refused(EchoRefusedResultRecv::Ok(resp))) => {
                        ::std::result::Result::Ok(::volo_thrift::MaybeException::Ok(resp))
                    }
                    Some(EchoResponseRecv::Refused(EchoRefusedResultRecv::NotFound(ex))) => {
                        ::std::result::Result::Ok(::volo_thrift::MaybeException::Exception(
                            EchoRefusedException::NotFound(ex),
                        ))
                    }
                    None => unreachable!(),
                    _ => unreachable!(),
                };
                ::volo_thrift::context::CLIENT_CONTEXT_CACHE.with(|cache| {
                    let mut cache = cache.borrow_mut();
                    if cache.len() < cache.capacity() {
                        cache.push(cx);
                    }
                });
                resp
            }
        }

        impl<
            S: ::volo::client::OneShotService<
                    ::volo_thrift::context::ClientContext,
                    EchoRequestSend,
                    Response = ::std::option::Option<EchoResponseRecv>,
                    Error = ::volo_thrift::ClientError,
                > + Send
                + Sync
                + 'static,
        > EchoOneShotClient<S>
        {
            pub async fn unary(
                self,
                body: ::pilota::Bytes,
            ) -> ::std::result::Result<::pilota::Bytes, ::volo_thrift::ClientError> {
                let req = EchoRequestSend::Unary(EchoUnaryArgsSend { body });
                let mut cx = self.0.make_cx("Unary", false);
                // Set IDL service name for multi-service routing
                ::volo_thrift::context::ThriftContext::set_idl_service_name(
                    &mut cx,
                    ::volo::FastStr::from_static_str("Echo"),
                );
                #[allow(unreachable_patterns)]
                let resp = match ::volo::client::OneShotService::call(self.0, &mut cx, req).await? {
                    Some(EchoResponseRecv::Unary(EchoUnaryResultRecv::Ok(resp))) => {
                        ::std::result::Result::Ok(resp)
                    }
                    None => unreachable!(),
                    _ => unreachable!(),
                };
                ::volo_thrift::context::CLIENT_CONTEXT_CACHE.with(|cache| {
                    let mut cache = cache.borrow_mut();
                    if cache.len() < cache.capacity() {
                        cache.push(cx);
                    }
                });
                resp
            }
            pub async fn refused(
                self,
                body: ::pilota::Bytes,
            ) -> ::std::result::Result<
                ::volo_thrift::MaybeException<::pilota::Bytes, EchoRefusedException>,
                ::volo_thrift::ClientError,
            > {
                let req = EchoRequestSend::Refused(EchoRefusedArgsSend { body });
                let mut cx = self.0.make_cx("Refused", false);
                // Set IDL service name for multi-service routing
                ::volo_thrift::context::ThriftContext::set_idl_service_name(
                    &mut cx,
                    ::volo::FastStr::from_static_str("Echo"),
                );
                #[allow(unreachable_patterns)]
                let resp = match ::volo::client::OneShotService::call(self.0, &mut cx, req).await? {
                    Some(EchoResponseRecv::Refused(EchoRefusedResultRecv::Ok(resp))) => {
                        ::std::result::Result::Ok(::volo_thrift::MaybeException::Ok(resp))
                    }
                    Some(EchoResponseRecv::Refused(EchoRefusedResultRecv::NotFound(ex))) => {
                        ::std::result::Result::Ok(::volo_thrift::MaybeException::Exception(
                            EchoRefusedException::NotFound(ex),
                        ))
                    }
                    None => unreachable!(),
                    _ => unreachable!(),
                };
                ::volo_thrift::context::CLIENT_CONTEXT_CACHE.with(|cache| {
                    let mut cache = cache.borrow_mut();
                    if cache.len() < cache.capacity() {
                        cache.push(cx);
                    }
                });
                resp
            }
        }

        pub struct EchoClientBuilder {}

        impl EchoClientBuilder {
            pub fn new(
                service_name: impl AsRef<str>,
            ) -> ::volo_thrift::client::ClientBuilder<
                ::volo::layer::Identity,
                ::volo::layer::Identity,
                MkEchoGenericClient,
                EchoRequestSend,
                EchoResponseRecv,
                ::volo::net::dial::DefaultMakeTransport,
                ::volo_thrift::codec::default::DefaultMakeCodec<
                    ::volo_thrift::codec::default::ttheader::MakeTTHeaderCodec<
                        ::volo_thrift::codec::default::framed::MakeFramedCodec<
                            ::volo_thrift::codec::default::thrift::MakeThriftCodec,
                        >,
                    >,
                >,
                ::volo::loadbalance::LbConfig<
                    ::volo::loadbalance::random::WeightedRandomBalance<()>,
                    ::volo::discovery::DummyDiscover,
                >,
            > {
                ::volo_thrift::client::ClientBuilder::new(service_name, MkEchoGenericClient)
            }
        }
        #[derive(Debug, Clone)]
        pub enum EchoRequestRecv {
            Unary(EchoUnaryArgsRecv),
            Refused(EchoRefusedArgsRecv),
        }

        #[derive(Debug, Clone)]
        pub enum EchoRequestSend {
            Unary(EchoUnaryArgsSend),
            Refused(EchoRefusedArgsSend),
        }

        #[derive(Debug, Clone)]
        pub enum EchoResponseRecv {
            Unary(EchoUnaryResultRecv),
            Refused(EchoRefusedResultRecv),
        }

        #[derive(Debug, Clone)]
        pub enum EchoResponseSend {
            Unary(EchoUnaryResultSend),
            Refused(EchoRefusedResultSend),
        }

        impl ::volo_thrift::EntryMessage for EchoRequestRecv {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::core::result::Result<(), ::pilota::thrift::ThriftException> {
                match self {
                    Self::Unary(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                    Self::Refused(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                }
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(::pilota::thrift::Message::decode(__protocol)?),
                    "Refused" => Self::Refused(::pilota::thrift::Message::decode(__protocol)?),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            async fn decode_async<T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(
                        <EchoUnaryArgsRecv as ::pilota::thrift::Message>::decode_async(__protocol)
                            .await?,
                    ),
                    "Refused" => Self::Refused(
                        <EchoRefusedArgsRecv as ::pilota::thrift::Message>::decode_async(
                            __protocol,
                        )
                        .await?,
                    ),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                match self {
                    Self::Unary(value) => ::volo_thrift::Message::size(value, __protocol),
                    Self::Refused(value) => ::volo_thrift::Message::size(value, __protocol),
                }
            }
        }
        impl ::volo_thrift::EntryMessage for EchoRequestSend {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::core::result::Result<(), ::pilota::thrift::ThriftException> {
                match self {
                    Self::Unary(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                    Self::Refused(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                }
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(::pilota::thrift::Message::decode(__protocol)?),
                    "Refused" => Self::Refused(::pilota::thrift::Message::decode(__protocol)?),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            async fn decode_async<T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(
                        <EchoUnaryArgsSend as ::pilota::thrift::Message>::decode_async(__protocol)
                            .await?,
                    ),
                    "Refused" => Self::Refused(
                        <EchoRefusedArgsSend as ::pilota::thrift::Message>::decode_async(
                            __protocol,
                        )
                        .await?,
                    ),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                match self {
                    Self::Unary(value) => ::volo_thrift::Message::size(value, __protocol),
                    Self::Refused(value) => ::volo_thrift::Message::size(value, __protocol),
                }
            }
        }
        impl ::volo_thrift::EntryMessage for EchoResponseRecv {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::core::result::Result<(), ::pilota::thrift::ThriftException> {
                match self {
                    Self::Unary(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                    Self::Refused(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                }
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(::pilota::thrift::Message::decode(__protocol)?),
                    "Refused" => Self::Refused(::pilota::thrift::Message::decode(__protocol)?),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            async fn decode_async<T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(
                        <EchoUnaryResultRecv as ::pilota::thrift::Message>::decode_async(
                            __protocol,
                        )
                        .await?,
                    ),
                    "Refused" => Self::Refused(
                        <EchoRefusedResultRecv as ::pilota::thrift::Message>::decode_async(
                            __protocol,
                        )
                        .await?,
                    ),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                match self {
                    Self::Unary(value) => ::volo_thrift::Message::size(value, __protocol),
                    Self::Refused(value) => ::volo_thrift::Message::size(value, __protocol),
                }
            }
        }
        impl ::volo_thrift::EntryMessage for EchoResponseSend {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::core::result::Result<(), ::pilota::thrift::ThriftException> {
                match self {
                    Self::Unary(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                    Self::Refused(value) => ::pilota::thrift::Message::encode(value, __protocol)
                        .map_err(|err| err.into()),
                }
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(::pilota::thrift::Message::decode(__protocol)?),
                    "Refused" => Self::Refused(::pilota::thrift::Message::decode(__protocol)?),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            async fn decode_async<T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &mut T,
                msg_ident: &::pilota::thrift::TMessageIdentifier,
            ) -> ::core::result::Result<Self, ::pilota::thrift::ThriftException> {
                ::std::result::Result::Ok(match &*msg_ident.name {
                    "Unary" => Self::Unary(
                        <EchoUnaryResultSend as ::pilota::thrift::Message>::decode_async(
                            __protocol,
                        )
                        .await?,
                    ),
                    "Refused" => Self::Refused(
                        <EchoRefusedResultSend as ::pilota::thrift::Message>::decode_async(
                            __protocol,
                        )
                        .await?,
                    ),
                    _ => {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_application_exception(
                                ::pilota::thrift::ApplicationExceptionKind::UNKNOWN_METHOD,
                                format!("unknown method {}", msg_ident.name),
                            ),
                        );
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                match self {
                    Self::Unary(value) => ::volo_thrift::Message::size(value, __protocol),
                    Self::Refused(value) => ::volo_thrift::Message::size(value, __protocol),
                }
            }
        }

        impl ::std::default::Default for EchoUnaryResultRecv {
            fn default() -> Self {
                EchoUnaryResultRecv::Ok(::std::default::Default::default())
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Clone, PartialEq)]
        pub enum EchoUnaryResultRecv {
            Ok(::pilota::Bytes),
        }

        impl ::pilota::thrift::Message for EchoUnaryResultRecv {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                __protocol.write_struct_begin(&::pilota::thrift::TStructIdentifier {
                    name: "EchoUnaryResultRecv",
                })?;
                match self {
                    EchoUnaryResultRecv::Ok(value) => {
                        __protocol.write_bytes_field(0, (value).clone())?;
                    }
                }
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};
                let mut ret = ::std::option::Option::None;
                __protocol.read_struct_begin()?;
                loop {
                    let field_ident = __protocol.read_field_begin()?;
                    if field_ident.field_type == ::pilota::thrift::TType::Stop {
                        __protocol.field_stop_len();
                        break;
                    } else {
                        __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                    }
                    match field_ident.id {
                        ::std::option::Option::Some(0) => {
                            if ret.is_none() {
                                let field_ident = __protocol.read_bytes()?;
                                __protocol.bytes_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoUnaryResultRecv::Ok(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        _ => {
                            __protocol.skip(field_ident.field_type)?;
                        }
                    }
                }
                __protocol.read_field_end()?;
                __protocol.read_struct_end()?;
                if let ::std::option::Option::Some(ret) = ret {
                    ::std::result::Result::Ok(ret)
                } else {
                    ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "received empty union from remote Message",
                    ))
                }
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut ret = ::std::option::Option::None;
                    __protocol.read_struct_begin().await?;
                    loop {
                        let field_ident = __protocol.read_field_begin().await?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            break;
                        } else {
                        }
                        match field_ident.id {
                            ::std::option::Option::Some(0) => {
                                if ret.is_none() {
                                    let field_ident = __protocol.read_bytes().await?;

                                    ret = ::std::option::Option::Some(EchoUnaryResultRecv::Ok(
                                        field_ident,
                                    ));
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type).await?;
                            }
                        }
                    }
                    __protocol.read_field_end().await?;
                    __protocol.read_struct_end().await?;
                    if let ::std::option::Option::Some(ret) = ret {
                        ::std::result::Result::Ok(ret)
                    } else {
                        ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                            "received empty union from remote Message",
                        ))
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoUnaryResultRecv",
                }) + match self {
                    EchoUnaryResultRecv::Ok(value) => {
                        __protocol.bytes_field_len(::std::option::Option::Some(0), value)
                    }
                } + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Default, Clone, PartialEq)]
        pub struct EchoUnaryArgsSend {
            pub body: ::pilota::Bytes,
        }
        impl ::pilota::thrift::Message for EchoUnaryArgsSend {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                let struct_ident =
                    ::pilota::thrift::TStructIdentifier { name: "EchoUnaryArgsSend" };

                __protocol.write_struct_begin(&struct_ident)?;
                __protocol.write_bytes_field(1, (&self.body).clone())?;
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};

                let mut var_1 = ::std::option::Option::None;

                let mut __pilota_decoding_field_id = ::std::option::Option::None;

                __protocol.read_struct_begin()?;
                if let ::std::result::Result::Err(mut err) = (|| {
                    loop {
                        let field_ident = __protocol.read_field_begin()?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            __protocol.field_stop_len();
                            break;
                        } else {
                            __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                        }
                        __pilota_decoding_field_id = field_ident.id;
                        match field_ident.id {
                            ::std::option::Option::Some(1)
                                if field_ident.field_type == ::pilota::thrift::TType::Binary =>
                            {
                                var_1 = ::std::option::Option::Some(__protocol.read_bytes()?);
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type)?;
                            }
                        }

                        __protocol.read_field_end()?;
                        __protocol.field_end_len();
                    }
                    ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                })() {
                    if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                        err.prepend_msg(&format!(
                            "decode struct `EchoUnaryArgsSend` field(#{}) failed, caused by: ",
                            field_id
                        ));
                    }
                    return ::std::result::Result::Err(err);
                };
                __protocol.read_struct_end()?;

                let ::std::option::Option::Some(var_1) = var_1 else {
                    return ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "field body is required".to_string(),
                    ));
                };

                let data = Self { body: var_1 };
                ::std::result::Result::Ok(data)
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut var_1 = ::std::option::Option::None;

                    let mut __pilota_decoding_field_id = ::std::option::Option::None;

                    __protocol.read_struct_begin().await?;
                    if let ::std::result::Result::Err(mut err) = async {
                        loop {
                            let field_ident = __protocol.read_field_begin().await?;
                            if field_ident.field_type == ::pilota::thrift::TType::Stop {
                                break;
                            } else {
                            }
                            __pilota_decoding_field_id = field_ident.id;
                            match field_ident.id {
                                ::std::option::Option::Some(1)
                                    if field_ident.field_type
                                        == ::pilota::thrift::TType::Binary =>
                                {
                                    var_1 =
                                        ::std::option::Option::Some(__protocol.read_bytes().await?);
                                }
                                _ => {
                                    __protocol.skip(field_ident.field_type).await?;
                                }
                            }

                            __protocol.read_field_end().await?;
                        }
                        ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                    }
                    .await
                    {
                        if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                            err.prepend_msg(&format!(
                                "decode struct `EchoUnaryArgsSend` field(#{}) failed, caused by: ",
                                field_id
                            ));
                        }
                        return ::std::result::Result::Err(err);
                    };
                    __protocol.read_struct_end().await?;

                    let ::std::option::Option::Some(var_1) = var_1 else {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_protocol_exception(
                                ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                "field body is required".to_string(),
                            ),
                        );
                    };

                    let data = Self { body: var_1 };
                    ::std::result::Result::Ok(data)
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoUnaryArgsSend",
                }) + __protocol.bytes_field_len(::std::option::Option::Some(1), &self.body)
                    + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Default, Clone, PartialEq)]
        pub struct EchoRefusedArgsSend {
            pub body: ::pilota::Bytes,
        }
        impl ::pilota::thrift::Message for EchoRefusedArgsSend {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                let struct_ident =
                    ::pilota::thrift::TStructIdentifier { name: "EchoRefusedArgsSend" };

                __protocol.write_struct_begin(&struct_ident)?;
                __protocol.write_bytes_field(1, (&self.body).clone())?;
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};

                let mut var_1 = ::std::option::Option::None;

                let mut __pilota_decoding_field_id = ::std::option::Option::None;

                __protocol.read_struct_begin()?;
                if let ::std::result::Result::Err(mut err) = (|| {
                    loop {
                        let field_ident = __protocol.read_field_begin()?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            __protocol.field_stop_len();
                            break;
                        } else {
                            __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                        }
                        __pilota_decoding_field_id = field_ident.id;
                        match field_ident.id {
                            ::std::option::Option::Some(1)
                                if field_ident.field_type == ::pilota::thrift::TType::Binary =>
                            {
                                var_1 = ::std::option::Option::Some(__protocol.read_bytes()?);
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type)?;
                            }
                        }

                        __protocol.read_field_end()?;
                        __protocol.field_end_len();
                    }
                    ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                })() {
                    if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                        err.prepend_msg(&format!(
                            "decode struct `EchoRefusedArgsSend` field(#{}) failed, caused by: ",
                            field_id
                        ));
                    }
                    return ::std::result::Result::Err(err);
                };
                __protocol.read_struct_end()?;

                let ::std::option::Option::Some(var_1) = var_1 else {
                    return ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "field body is required".to_string(),
                    ));
                };

                let data = Self { body: var_1 };
                ::std::result::Result::Ok(data)
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut var_1 = ::std::option::Option::None;

                    let mut __pilota_decoding_field_id = ::std::option::Option::None;

                    __protocol.read_struct_begin().await?;
                    if let ::std::result::Result::Err(mut err) = async {
                        loop {
                            let field_ident = __protocol.read_field_begin().await?;
                            if field_ident.field_type == ::pilota::thrift::TType::Stop {
                                break;
                            } else {
                            }
                            __pilota_decoding_field_id = field_ident.id;
                            match field_ident.id {
                                ::std::option::Option::Some(1)
                                    if field_ident.field_type
                                        == ::pilota::thrift::TType::Binary =>
                                {
                                    var_1 =
                                        ::std::option::Option::Some(__protocol.read_bytes().await?);
                                }
                                _ => {
                                    __protocol.skip(field_ident.field_type).await?;
                                }
                            }

                            __protocol.read_field_end().await?;
                        }
                        ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                    }
                    .await
                    {
                        if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                            err.prepend_msg(&format!("decode struct `EchoRefusedArgsSend` field(#{}) failed, caused by: ", field_id));
                        }
                        return ::std::result::Result::Err(err);
                    };
                    __protocol.read_struct_end().await?;

                    let ::std::option::Option::Some(var_1) = var_1 else {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_protocol_exception(
                                ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                "field body is required".to_string(),
                            ),
                        );
                    };

                    let data = Self { body: var_1 };
                    ::std::result::Result::Ok(data)
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoRefusedArgsSend",
                }) + __protocol.bytes_field_len(::std::option::Option::Some(1), &self.body)
                    + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Default, Clone, PartialEq)]
        pub struct EchoUnaryArgsRecv {
            pub body: ::pilota::Bytes,
        }
        impl ::pilota::thrift::Message for EchoUnaryArgsRecv {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                let struct_ident =
                    ::pilota::thrift::TStructIdentifier { name: "EchoUnaryArgsRecv" };

                __protocol.write_struct_begin(&struct_ident)?;
                __protocol.write_bytes_field(1, (&self.body).clone())?;
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};

                let mut var_1 = ::std::option::Option::None;

                let mut __pilota_decoding_field_id = ::std::option::Option::None;

                __protocol.read_struct_begin()?;
                if let ::std::result::Result::Err(mut err) = (|| {
                    loop {
                        let field_ident = __protocol.read_field_begin()?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            __protocol.field_stop_len();
                            break;
                        } else {
                            __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                        }
                        __pilota_decoding_field_id = field_ident.id;
                        match field_ident.id {
                            ::std::option::Option::Some(1)
                                if field_ident.field_type == ::pilota::thrift::TType::Binary =>
                            {
                                var_1 = ::std::option::Option::Some(__protocol.read_bytes()?);
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type)?;
                            }
                        }

                        __protocol.read_field_end()?;
                        __protocol.field_end_len();
                    }
                    ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                })() {
                    if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                        err.prepend_msg(&format!(
                            "decode struct `EchoUnaryArgsRecv` field(#{}) failed, caused by: ",
                            field_id
                        ));
                    }
                    return ::std::result::Result::Err(err);
                };
                __protocol.read_struct_end()?;

                let ::std::option::Option::Some(var_1) = var_1 else {
                    return ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "field body is required".to_string(),
                    ));
                };

                let data = Self { body: var_1 };
                ::std::result::Result::Ok(data)
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut var_1 = ::std::option::Option::None;

                    let mut __pilota_decoding_field_id = ::std::option::Option::None;

                    __protocol.read_struct_begin().await?;
                    if let ::std::result::Result::Err(mut err) = async {
                        loop {
                            let field_ident = __protocol.read_field_begin().await?;
                            if field_ident.field_type == ::pilota::thrift::TType::Stop {
                                break;
                            } else {
                            }
                            __pilota_decoding_field_id = field_ident.id;
                            match field_ident.id {
                                ::std::option::Option::Some(1)
                                    if field_ident.field_type
                                        == ::pilota::thrift::TType::Binary =>
                                {
                                    var_1 =
                                        ::std::option::Option::Some(__protocol.read_bytes().await?);
                                }
                                _ => {
                                    __protocol.skip(field_ident.field_type).await?;
                                }
                            }

                            __protocol.read_field_end().await?;
                        }
                        ::std::result::Result::Ok::<_, ::pilota::thrift::ThriftException>(())
                    }
                    .await
                    {
                        if let ::std::option::Option::Some(field_id) = __pilota_decoding_field_id {
                            err.prepend_msg(&format!(
                                "decode struct `EchoUnaryArgsRecv` field(#{}) failed, caused by: ",
                                field_id
                            ));
                        }
                        return ::std::result::Result::Err(err);
                    };
                    __protocol.read_struct_end().await?;

                    let ::std::option::Option::Some(var_1) = var_1 else {
                        return ::std::result::Result::Err(
                            ::pilota::thrift::new_protocol_exception(
                                ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                "field body is required".to_string(),
                            ),
                        );
                    };

                    let data = Self { body: var_1 };
                    ::std::result::Result::Ok(data)
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoUnaryArgsRecv",
                }) + __protocol.bytes_field_len(::std::option::Option::Some(1), &self.body)
                    + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
        impl ::std::default::Default for EchoUnaryResultSend {
            fn default() -> Self {
                EchoUnaryResultSend::Ok(::std::default::Default::default())
            }
        }
        #[derive(PartialOrd, Hash, Eq, Ord, Debug, Clone, PartialEq)]
        pub enum EchoUnaryResultSend {
            Ok(::pilota::Bytes),
        }

        impl ::pilota::thrift::Message for EchoUnaryResultSend {
            fn encode<T: ::pilota::thrift::TOutputProtocol>(
                &self,
                __protocol: &mut T,
            ) -> ::std::result::Result<(), ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::thrift::TOutputProtocolExt;
                __protocol.write_struct_begin(&::pilota::thrift::TStructIdentifier {
                    name: "EchoUnaryResultSend",
                })?;
                match self {
                    EchoUnaryResultSend::Ok(value) => {
                        __protocol.write_bytes_field(0, (value).clone())?;
                    }
                }
                __protocol.write_field_stop()?;
                __protocol.write_struct_end()?;
                ::std::result::Result::Ok(())
            }

            fn decode<T: ::pilota::thrift::TInputProtocol>(
                __protocol: &mut T,
            ) -> ::std::result::Result<Self, ::pilota::thrift::ThriftException> {
                #[allow(unused_imports)]
                use ::pilota::{Buf, thrift::TLengthProtocolExt};
                let mut ret = ::std::option::Option::None;
                __protocol.read_struct_begin()?;
                loop {
                    let field_ident = __protocol.read_field_begin()?;
                    if field_ident.field_type == ::pilota::thrift::TType::Stop {
                        __protocol.field_stop_len();
                        break;
                    } else {
                        __protocol.field_begin_len(field_ident.field_type, field_ident.id);
                    }
                    match field_ident.id {
                        ::std::option::Option::Some(0) => {
                            if ret.is_none() {
                                let field_ident = __protocol.read_bytes()?;
                                __protocol.bytes_len(&field_ident);
                                ret = ::std::option::Option::Some(EchoUnaryResultSend::Ok(
                                    field_ident,
                                ));
                            } else {
                                return ::std::result::Result::Err(
                                    ::pilota::thrift::new_protocol_exception(
                                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                        "received multiple fields for union from remote Message",
                                    ),
                                );
                            }
                        }
                        _ => {
                            __protocol.skip(field_ident.field_type)?;
                        }
                    }
                }
                __protocol.read_field_end()?;
                __protocol.read_struct_end()?;
                if let ::std::option::Option::Some(ret) = ret {
                    ::std::result::Result::Ok(ret)
                } else {
                    ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                        ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                        "received empty union from remote Message",
                    ))
                }
            }

            fn decode_async<'a, T: ::pilota::thrift::TAsyncInputProtocol>(
                __protocol: &'a mut T,
            ) -> ::std::pin::Pin<
                ::std::boxed::Box<
                    dyn ::std::future::Future<
                            Output = ::std::result::Result<Self, ::pilota::thrift::ThriftException>,
                        > + Send
                        + 'a,
                >,
            > {
                ::std::boxed::Box::pin(async move {
                    let mut ret = ::std::option::Option::None;
                    __protocol.read_struct_begin().await?;
                    loop {
                        let field_ident = __protocol.read_field_begin().await?;
                        if field_ident.field_type == ::pilota::thrift::TType::Stop {
                            break;
                        } else {
                        }
                        match field_ident.id {
                            ::std::option::Option::Some(0) => {
                                if ret.is_none() {
                                    let field_ident = __protocol.read_bytes().await?;

                                    ret = ::std::option::Option::Some(EchoUnaryResultSend::Ok(
                                        field_ident,
                                    ));
                                } else {
                                    return ::std::result::Result::Err(
                                        ::pilota::thrift::new_protocol_exception(
                                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                                            "received multiple fields for union from remote Message",
                                        ),
                                    );
                                }
                            }
                            _ => {
                                __protocol.skip(field_ident.field_type).await?;
                            }
                        }
                    }
                    __protocol.read_field_end().await?;
                    __protocol.read_struct_end().await?;
                    if let ::std::option::Option::Some(ret) = ret {
                        ::std::result::Result::Ok(ret)
                    } else {
                        ::std::result::Result::Err(::pilota::thrift::new_protocol_exception(
                            ::pilota::thrift::ProtocolExceptionKind::InvalidData,
                            "received empty union from remote Message",
                        ))
                    }
                })
            }

            fn size<T: ::pilota::thrift::TLengthProtocol>(&self, __protocol: &mut T) -> usize {
                #[allow(unused_imports)]
                use ::pilota::thrift::TLengthProtocolExt;
                __protocol.struct_begin_len(&::pilota::thrift::TStructIdentifier {
                    name: "EchoUnaryResultSend",
                }) + match self {
                    EchoUnaryResultSend::Ok(value) => {
                        __protocol.bytes_field_len(::std::option::Option::Some(0), value)
                    }
                } + __protocol.field_stop_len()
                    + __protocol.struct_end_len()
            }
        }
    }
}
